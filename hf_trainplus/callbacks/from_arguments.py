"""The callbacks that the Plus arguments ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.budget.stages import StagePlan
    from hf_trainplus.training.stages.run import StagedRun
    from hf_trainplus.training_args import PlusTrainingArguments


def add_asked_callbacks(trainer: Trainer) -> None:
    """Add the callbacks of a trainer's options; plain arguments ask for the step clock alone.

    Args:
        trainer: a trainer whose own callbacks are in place.
    """
    from hf_trainplus.callbacks.monitoring import attach_monitoring
    from hf_trainplus.training.stages.environment import launched_stage

    args = cast("PlusTrainingArguments", trainer.args)
    attach_monitoring(trainer, getattr(args, "gpu_monitor", False))
    if getattr(args, "eval_schedule", "fixed") == "adaptive":
        add_schedule(trainer, args)
    signals, watched = getattr(args, "stop_signals", None), _has_budget(trainer)
    limited = any(getattr(args, name, None) is not None for name in ("budget", "deadline"))
    if limited or (signals is not None and launched_stage() is not None and not watched):
        _add_budget(trainer, args, signals)
    elif signals is not None and not watched:
        from hf_trainplus.callbacks.stop_signals import StopSignalsCallback

        trainer.add_callback(StopSignalsCallback(signals))


def add_plan(
    trainer: Trainer, given: StagePlan | Mapping[str, Any] | str | None, data: Any, extra_sets: Mapping[str, Any]
) -> StagedRun | None:
    """Make a trainer run the plan that it was given, or that its arguments name; None without one.

    Args:
        trainer: a trainer whose other callbacks are in place.
        given: the trainer's own argument, which wins.
        data: the training data, or a mapping of data sets by name.
        extra_sets: further evaluation sets by name.

    Raises:
        ValueError: the plan does not parse or cannot be run, or several data sets were given and no plan.
    """
    plan = getattr(trainer.args, "plan", None) if given is None else given
    if plan is None:
        if isinstance(data, Mapping):
            raise ValueError(
                f"train_dataset holds {', '.join(map(str, data))}, and no plan says which stage trains on which. Pass "
                "one data set, or plan='plan.yaml'."
            )
        return None
    from hf_trainplus.callbacks.staged import attach_plan

    return attach_plan(trainer, plan, data, extra_sets)


def add_schedule(trainer: Trainer, args: PlusTrainingArguments) -> None:
    """Add the adaptive schedule with its options."""
    from hf_trainplus.callbacks.adaptive_evaluation import AdaptiveEvaluationCallback

    trainer.add_callback(
        AdaptiveEvaluationCallback(
            args.eval_min_steps,
            args.eval_max_steps,
            args.eval_improvement_threshold,
            time_share=args.eval_time_share,
        )
    )


def _has_budget(trainer: Trainer) -> bool:
    from hf_trainplus.callbacks.budget import BudgetCallback

    return any(isinstance(one, BudgetCallback) for one in trainer.callback_handler.callbacks)


def _add_budget(trainer: Trainer, args: PlusTrainingArguments, signals: str | None) -> None:
    from hf_trainplus.callbacks.budget import BudgetCallback

    trainer.add_callback(
        BudgetCallback(
            getattr(args, "budget", None),
            usd_per_device_hour=getattr(args, "usd_per_device_hour", None),
            deadline=getattr(args, "deadline", None),
            stop_signals=signals,
        )
    )
