"""Reads from a Trainer's arguments and state what the budget needs to know: progress, rhythm, devices, energy."""

from __future__ import annotations

import math
from typing import Any

from transformers import TrainerState, TrainingArguments

from hf_trainplus.budget.keeping.energy import Joules, nvml_joules
from hf_trainplus.budget.meter import Progress
from hf_trainplus.budget.remaining import Rhythm
from hf_trainplus.callbacks._torch_devices import torch_cuda_uuids


def counts_tokens(args: TrainingArguments) -> bool:
    """Say whether the Trainer counts tokens."""
    return str(args.include_num_input_tokens_seen) not in ("no", "False", "None")


def progress_of(args: TrainingArguments, state: TrainerState, loader: Any = None) -> Progress:
    """Return how far training is, as the Trainer counts it."""
    return Progress(
        steps=state.global_step,
        epochs=None if state.epoch is None else float(state.epoch),
        examples=_examples(args, state, loader),
        tokens=int(state.num_input_tokens_seen) if counts_tokens(args) else None,
        flops=float(state.total_flos) if state.total_flos else None,
    )


def _examples(args: TrainingArguments, state: TrainerState, loader: Any) -> int | None:
    """Rows seen by all ranks; the last batch of an epoch is short, so steps times batch size says too much."""
    try:
        batches, rows = len(loader), len(loader.dataset)
    except (TypeError, AttributeError):
        return None
    if state.epoch is None or not batches:
        return None
    batch = int(args.train_batch_size) * max(1, int(args.world_size))
    passes = math.floor(state.epoch + 1e-9)
    return passes * min(rows, batches * batch) + min(rows, round((state.epoch - passes) * batches) * batch)


def rhythm_of(args: TrainingArguments, state: TrainerState, evaluations: int, loader: Any = None) -> Rhythm:
    """Return when the run evaluates and saves; evaluations that only a callback asks for count at their own pace."""
    an_epoch = _steps_an_epoch(args, loader)
    if an_epoch is None and args.num_train_epochs > 0:
        an_epoch = math.ceil(state.max_steps / args.num_train_epochs)
    evaluate_every = _every(args.eval_strategy, state.eval_steps, an_epoch)
    if evaluate_every is None and evaluations:
        evaluate_every = max(1, state.global_step // evaluations)
    return Rhythm(
        max_steps=state.max_steps,
        evaluate_every=evaluate_every,
        save_every=_every(args.save_strategy, state.save_steps, an_epoch),
    )


def _steps_an_epoch(args: TrainingArguments, loader: Any) -> int | None:
    """Optimizer steps of a pass over the data: where max_steps is given, the number of epochs says nothing of it."""
    try:
        batches = len(loader)
    except TypeError:
        return None
    return math.ceil(batches / args.gradient_accumulation_steps) or None


def _every(strategy: Any, steps: float | None, an_epoch: int | None) -> int | None:
    if strategy == "epoch":
        return an_epoch
    return int(steps) if strategy == "steps" and steps and steps >= 1 else None


def joules_of(args: TrainingArguments) -> Joules | None:
    """Return what reads the energy of this process's GPUs, None without any."""
    uuids = torch_cuda_uuids() if args.device.type == "cuda" else None
    if uuids and args.n_gpu <= 1:
        uuids = [uuids[args.device.index or 0]]
    return nvml_joules(uuids) if uuids else None
