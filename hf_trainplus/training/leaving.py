"""When an evaluation must be left between two batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hf_trainplus.evaluation.ranks import Ranks

if TYPE_CHECKING:
    from transformers import Trainer


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
