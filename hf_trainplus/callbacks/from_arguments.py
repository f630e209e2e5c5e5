"""The callbacks that the Plus arguments ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.training_args import PlusTrainingArguments


def add_asked_callbacks(trainer: Trainer) -> None:
    """Add the callbacks of a trainer's options; plain arguments ask for the step clock alone.

    Args:
        trainer: a trainer whose own callbacks are in place.
    """
    from hf_trainplus.callbacks.monitoring import attach_monitoring

    args = cast("PlusTrainingArguments", trainer.args)
    attach_monitoring(trainer, getattr(args, "gpu_monitor", False))
    if getattr(args, "eval_schedule", "fixed") == "adaptive":
        _add_schedule(trainer, args)
    if any(getattr(args, name, None) is not None for name in ("budget", "deadline", "stop_signals")):
        _add_budget(trainer, args)


def _add_schedule(trainer: Trainer, args: PlusTrainingArguments) -> None:
    from hf_trainplus.callbacks.adaptive_evaluation import AdaptiveEvaluationCallback

    trainer.add_callback(
        AdaptiveEvaluationCallback(
            args.eval_min_steps,
            args.eval_max_steps,
            args.eval_improvement_threshold,
            time_share=args.eval_time_share,
        )
    )


def _add_budget(trainer: Trainer, args: PlusTrainingArguments) -> None:
    from hf_trainplus.callbacks.budget import BudgetCallback

    trainer.add_callback(
        BudgetCallback(
            args.budget,
            usd_per_device_hour=args.usd_per_device_hour,
            deadline=args.deadline,
            stop_signals=args.stop_signals,
        )
    )
