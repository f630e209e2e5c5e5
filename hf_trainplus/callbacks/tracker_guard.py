"""A tracker that fails costs one message, never the run."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from transformers import Trainer, TrainerCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.utils import logging

logger = logging.get_logger("hf_trainplus")

_EVENTS = tuple(name for name in dir(TrainerCallback) if name.startswith("on_"))


def guard_trackers(trainer: Trainer) -> list[TrainerCallback]:
    """Let each tracker of ``report_to`` fail alone: its first exception is reported, and then it is skipped.

    The callbacks keep their classes and their places. Only trackers that transformers knows are guarded; an exception
    of any other callback still ends training, since nobody can know what it was meant to do. Ctrl-C and system exits
    pass through.

    Args:
        trainer: a trainer with its callbacks in place; a tracker that is guarded already is left as it is.

    Returns:
        The trackers that are guarded.
    """
    known = tuple(set(INTEGRATION_TO_CALLBACK.values()))
    trackers = [cast(TrainerCallback, one) for one in trainer.callback_handler.callbacks if isinstance(one, known)]
    for tracker in trackers:
        if "_trainplus_guard" not in vars(tracker):
            _guard(tracker)
    return trackers


def _guard(tracker: TrainerCallback) -> None:
    failed: list[str] = []
    vars(tracker)["_trainplus_guard"] = failed

    def around(event: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if failed:
                return None
            try:
                return original(*args, **kwargs)
            except Exception as error:
                failed.append(event)
                logger.warning(
                    f"{type(tracker).__name__} failed in {event} ({type(error).__name__}: {error}); training goes on "
                    "without it."
                )
                return None

        return guarded

    for event in _EVENTS:
        setattr(tracker, event, around(event, getattr(tracker, event)))
