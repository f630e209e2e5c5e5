"""Ties a plan to a PlusTrainer: its run, its callbacks, its trackers that live as long as the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from transformers import TrainerCallback

from hf_trainplus.budget.budget import Budget
from hf_trainplus.budget.plan_file import read_plan
from hf_trainplus.budget.plans.plan_cost import later_stages_seconds
from hf_trainplus.budget.plans.plan_setting import PlanSetting
from hf_trainplus.budget.plans.stage import Stage
from hf_trainplus.budget.stages import StagePlan
from hf_trainplus.callbacks._budget_resume import require_measured
from hf_trainplus.callbacks._wiring import put_around
from hf_trainplus.callbacks.adaptive_evaluation import AdaptiveEvaluationCallback
from hf_trainplus.callbacks.budget import BudgetCallback
from hf_trainplus.callbacks.from_arguments import add_schedule
from hf_trainplus.callbacks.stage import StageCallback
from hf_trainplus.training.run_size import device_count
from hf_trainplus.training.stages.arguments import metered_limits
from hf_trainplus.training.stages.checks import refuse_what_cannot_run
from hf_trainplus.training.stages.data import StageData, rows_of
from hf_trainplus.training.stages.environment import launched_stage
from hf_trainplus.training.stages.run import StagedRun

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.training_args import PlusTrainingArguments

_TRACKERS = "transformers.integrations"


def attach_plan(
    trainer: Trainer, given: StagePlan | Mapping[str, Any] | str, data: Any, extra_sets: Mapping[str, Any]
) -> StagedRun:
    """Make a trainer run a plan.

    Args:
        trainer: a trainer whose other callbacks are in place.
        given: the plan, or its file.
        data: the training data, or a mapping of data sets by name.
        extra_sets: further evaluation sets by name.

    Returns:
        The run.

    Raises:
        ValueError: the plan does not parse, or the trainer cannot run it; all that is wrong, a line each.
    """
    only = launched_stage()
    plan = read_plan(given, world_size=None if only else device_count(trainer.args))
    sets = StageData(data)
    refuse_what_cannot_run(trainer, plan, sets, list(extra_sets), only=only)
    for stage in plan:
        _require_measured(trainer, stage)
    run = StagedRun(trainer, plan, sets, only=only)
    callback = StageCallback(run)
    run.entry = callback.state
    schedules: list[TrainerCallback] = []
    if getattr(trainer.args, "eval_schedule", "fixed") == "adaptive":  # the one that the arguments asked for
        schedules += [one for one in trainer.callback_handler.callbacks if isinstance(one, AdaptiveEvaluationCallback)]
    run.before_stage = lambda: _renew_schedule(trainer, callback, schedules)
    trainer.add_callback(callback)
    put_around(trainer.callback_handler, "on_train_end", partial(_keep_trackers, trainer, run))
    for other in trainer.callback_handler.callbacks:
        if isinstance(other, BudgetCallback):
            other.later_stages = lambda: _later_seconds(trainer, run, callback)
            other.stage_rooms = lambda: callback.rooms(trainer.state)
    return run


def _require_measured(trainer: Trainer, stage: Stage) -> None:
    try:
        require_measured(Budget(**metered_limits(stage)), trainer.args, None)
    except ValueError as error:
        raise ValueError(f"stage {stage.name!r}: {error}") from None


def _renew_schedule(trainer: Trainer, callback: StageCallback, schedules: list[TrainerCallback]) -> None:
    """Add or take away the adaptive schedule, as the stage says; the stage's own callback stays last."""
    while schedules:
        trainer.remove_callback(schedules.pop())
    if getattr(trainer.args, "eval_schedule", "fixed") == "adaptive":
        add_schedule(trainer, cast("PlusTrainingArguments", trainer.args))
        schedules.append(trainer.callback_handler.callbacks[-1])
    trainer.remove_callback(callback)
    trainer.add_callback(callback)


def _keep_trackers(trainer: Trainer, run: StagedRun, end: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Leave trackers open between two stages of one process: the run is one to them."""
    handler = trainer.callback_handler
    if not run.goes_on or run.only is not None:
        return end(*args, **kwargs)
    everybody = handler.callbacks
    handler.callbacks = [one for one in everybody if not type(one).__module__.startswith(_TRACKERS)]
    try:
        return end(*args, **kwargs)
    finally:
        handler.callbacks = everybody


def _later_seconds(trainer: Trainer, run: StagedRun, callback: StageCallback) -> float | None:
    """Forecast the stages after this one from what this one took; None where it cannot be known."""
    args, devices = trainer.args, device_count(trainer.args)
    sets = trainer.eval_dataset
    rows = {"train": rows_of(trainer.train_dataset), "eval": None if isinstance(sets, dict) else rows_of(sets)}
    share = run.stage.data_fraction or 1.0
    setting = PlanSetting(
        devices=devices,
        usd_per_device_hour=getattr(args, "usd_per_device_hour", None),
        rows=None if rows["train"] is None else round(rows["train"] / share),
        evaluation_rows=rows["eval"],
        per_device_train_batch_size=args.per_device_train_batch_size,
    )
    rows_a_step = args.per_device_train_batch_size * args.gradient_accumulation_steps * devices
    measured = setting.with_measured(callback.measured, run.stage, rows_a_step)
    return later_stages_seconds(run.plan, run.start.stage, measured)
