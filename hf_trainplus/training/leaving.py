"""When an evaluation must be left between two batches, in a training run and outside one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hf_trainplus.evaluation.ranks import Ranks

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.trainer import PlusTrainer


def must_leave(trainer: PlusTrainer) -> bool:
    """Say whether the running evaluation is to be left now, the same on all ranks. It is a collective.

    Outside training a request counts for one call of ``evaluate`` or ``predict``, and is used up by leaving it.

    Args:
        trainer: the trainer that evaluates.
    """
    if trainer.is_in_train:
        return urgent_stop_seen(trainer)
    asked = Ranks.current().any(trainer.leave_requested)
    if asked:
        trainer.leave_requested = False
    return asked


def was_left(error: Exception) -> bool:
    """Say whether an evaluation ended because it was left on request, and not by a failure."""
    from hf_trainplus.evaluation.loop import EvaluationLeft  # an evaluation has imported it; making a trainer need not

    return isinstance(error, EvaluationLeft)


def close_bars(trainer: Trainer) -> None:
    """Close the bars of an evaluation that was left; its callbacks are told of no end."""
    for callback in trainer.callback_handler.callbacks:
        bar = getattr(callback, "prediction_bar", None)
        if bar is not None:
            bar.close()
            callback.prediction_bar = None


def urgent_stop_seen(trainer: Trainer) -> bool:
    """Say whether any rank was told to leave at once: by ``request_stop``, or by a signal that a callback watches.

    A budget or a deadline is no reason: the last evaluation is reserved inside them. It is a collective.

    Args:
        trainer: its callbacks with a ``check(state)`` are asked.
    """
    own = bool(getattr(trainer, "stop_requested", False))
    for callback in trainer.callback_handler.callbacks:
        check = getattr(callback, "check", None)
        reason = check(trainer.state) if callable(check) and hasattr(callback, "stop_reason") else None
        own = own or bool(getattr(reason, "urgent", False))
    return Ranks.current().any(own)
