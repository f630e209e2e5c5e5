"""The arguments that a diagnosis may advise to change, as plain numbers."""

from __future__ import annotations

import os

from transformers import TrainingArguments


def settings_of(args: TrainingArguments) -> dict[str, float | None]:
    """Return them by the names of ``monitor.diagnosis.Settings``; a rhythm that is not by steps is None."""
    return {
        "dataloader_num_workers": args.dataloader_num_workers,
        "per_device_train_batch_size": args.per_device_train_batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        "logging_steps": _steps(args.logging_strategy, args.logging_steps),
        "eval_steps": _steps(args.eval_strategy, args.eval_steps),
        "save_steps": _steps(args.save_strategy, args.save_steps),
        # PlusTrainer's: the level of the intervals in its logs
        "eval_confidence": getattr(args, "eval_confidence", None),
        # the processes of a machine share its cores
        "cpus_per_process": max(_cpus() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1),
    }


def _cpus() -> int:
    # a container or a batch system gives a job fewer cores than the machine has
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _steps(strategy: object, steps: float | None) -> float | None:
    return steps if getattr(strategy, "value", strategy) == "steps" else None
