"""Put a callback behind those whose requests it has to see, on a Trainer that hands callbacks no handler."""

from __future__ import annotations

import sys

from transformers import TrainerCallback
from transformers.trainer_callback import CallbackHandler


def stand_last(callback: TrainerCallback) -> None:
    """Move the callback whose event is running behind all others, but for those that say ``follows_schedules``.

    Upstream tells callbacks nothing of each other; the handler that calls them is on the stack. The list is replaced
    and not changed, since the handler is going through it. Called outside of an event it does nothing.

    Args:
        callback: the one that calls, in one of its events.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and not isinstance(frame.f_locals.get("self"), CallbackHandler):
        frame = frame.f_back
    handler = frame.f_locals.get("self")
    if not isinstance(handler, CallbackHandler) or callback not in handler.callbacks:
        return
    others = [one for one in handler.callbacks if one is not callback]
    behind = [one for one in others if getattr(one, "follows_schedules", False)]
    handler.callbacks = [one for one in others if one not in behind] + [callback, *behind]
