"""The training arguments of one stage: the run's own with what the stage says on top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SchedulerType

from hf_trainplus.budget.plans.stage import BATCH_ARGUMENTS, Stage
from hf_trainplus.budget.remaining import OPEN_STEPS

_COUNTED = ("max_steps", "num_train_epochs")


def metered_limits(stage: Stage) -> dict[str, float]:
    """Return the limits that need a meter: time, device-hours, tokens, energy, money."""
    return {name: value for name, value in stage.limits().limits().items() if name not in _COUNTED}


def is_open(stage: Stage) -> bool:
    """Say whether only a meter ends the stage, so that its number of steps is not known.

    Its learning rate is read at the share of the budget that is used.

    Example:
        >>> is_open(Stage("a", budget="wall_clock=2h")), is_open(Stage("b", budget="wall_clock=2h,max_steps=9"))
        (True, False)
    """
    limits = stage.limits().limits()
    return bool(limits) and not any(name in limits for name in _COUNTED)


def stage_arguments(stage: Stage, args: TrainingArguments, devices: int) -> dict[str, Any]:
    """Return the fields of the arguments that are different in a stage.

    Args:
        stage: the stage.
        args: the run's own arguments.
        devices: processes times devices a process.

    Raises:
        ValueError: the global batch size cannot be made up.
    """
    return {**_batch(stage, args, devices), **_optimization(stage), **_length(stage, args), **_evaluation(stage, args)}


def training_fields(stage: Stage, args: TrainingArguments, devices: int) -> dict[str, Any]:
    """Return only what must be known when the arguments are made: batch sizes and optimization.

    DeepSpeed fixes both in its configuration then.
    """
    return {**_batch(stage, args, devices), **_optimization(stage)}


def _batch(stage: Stage, args: TrainingArguments, devices: int) -> dict[str, Any]:
    rows = stage.rows_a_device(devices, args.per_device_train_batch_size)
    found = {"per_device_train_batch_size": rows}
    if stage.global_batch_size is not None or stage.gradient_accumulation_steps is not None:
        found["gradient_accumulation_steps"] = stage.accumulation(devices, rows)
    return found


def _optimization(stage: Stage) -> dict[str, Any]:
    found = stage.training_arguments()
    for name in BATCH_ARGUMENTS:
        found.pop(name, None)
    if "lr_scheduler_type" in found:
        found["lr_scheduler_type"] = SchedulerType(found["lr_scheduler_type"])
        # settings of the run's own schedule mean nothing to another one
        found.setdefault("lr_scheduler_kwargs", {})
    return found


def _length(stage: Stage, args: TrainingArguments) -> dict[str, Any]:
    if not stage.trains:
        return {"max_steps": -1, "num_train_epochs": 0}
    limits = stage.limits().limits()
    if is_open(stage):
        return {"max_steps": OPEN_STEPS}
    if not limits:
        return {}
    steps = int(limits["max_steps"]) if "max_steps" in limits else -1
    return {"max_steps": steps, "num_train_epochs": limits.get("num_train_epochs", args.num_train_epochs)}


def _evaluation(stage: Stage, args: TrainingArguments) -> dict[str, Any]:
    given = {} if stage.eval is None else stage.eval.settings()
    names = {
        "mode": "eval_mode",
        "subset_size": "eval_subset_size",
        "subset_strategy": "eval_subset_strategy",
        "schedule": "eval_schedule",
        "tolerance": "eval_tolerance",
        "time_share": "eval_time_share",
    }
    found = {field: given[name] for name, field in names.items() if name in given}
    strategy = IntervalStrategy(given["strategy"]) if "strategy" in given else args.eval_strategy
    if "strategy" in given:
        found["eval_strategy"] = strategy
    if strategy == IntervalStrategy.STEPS:
        found["eval_steps"] = given.get("every") or args.eval_steps or args.logging_steps
    return found


def epochs_between(stage: Stage, args: TrainingArguments) -> int:
    """Return after how many epochs a stage that evaluates by epochs does so."""
    given = {} if stage.eval is None else stage.eval.settings()
    by_epoch = given.get("strategy", str(getattr(args.eval_strategy, "value", args.eval_strategy))) == "epoch"
    return int(given.get("every", 1)) if by_epoch else 1


def evaluates(stage: Stage, args: TrainingArguments) -> bool:
    """Say whether a stage evaluates at all: then it does so at its boundary too."""
    if not stage.trains:
        return True
    fields = _evaluation(stage, args)
    strategy = fields.get("eval_strategy", args.eval_strategy)
    adaptive = fields.get("eval_schedule", getattr(args, "eval_schedule", "fixed")) == "adaptive"
    return bool(adaptive or strategy != IntervalStrategy.NO)


@contextmanager
def applied(args: TrainingArguments, fields: Mapping[str, Any]) -> Iterator[None]:
    """Set fields of the arguments inside the context and put them back after it."""
    before = {name: getattr(args, name) for name in fields}
    for name, value in fields.items():
        setattr(args, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(args, name, value)


def counted_steps(stage: Stage, update_steps_an_epoch: int, planned: int) -> int:
    """Return the steps of a stage that is limited in steps and in epochs: the fewer.

    Args:
        stage: the stage.
        update_steps_an_epoch: optimizer steps of a pass over its data.
        planned: steps that the Trainer found from one of the two.
    """
    limits = stage.limits().limits()
    if not all(name in limits for name in _COUNTED):
        return planned
    by_epochs = -int(-limits["num_train_epochs"] * update_steps_an_epoch // 1)
    return min(int(limits["max_steps"]), by_epochs)
