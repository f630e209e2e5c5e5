"""A monitor that fails costs one message, never the run."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from transformers import TrainerCallback
from transformers.utils import logging

logger = logging.get_logger("hf_trainplus")


class GuardedCallback(TrainerCallback):
    """Base of callbacks that only watch: the first exception of an event is reported, and then the rest is skipped.

    It is for callbacks without collectives: a rank that skips one would leave the others waiting. Ctrl-C and system
    exits pass through.

    Example:
        >>> class Broken(GuardedCallback):
        ...     def on_step_end(self, args, state, control, **kwargs):
        ...         raise ZeroDivisionError("mine")
        >>> Broken().on_step_end(None, None, None) is None       # a warning, no exception
        True
    """

    failed = False

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        for name, method in list(vars(cls).items()):
            if name.startswith("on_"):
                setattr(cls, name, _guarded(name, method))


def _guarded(event: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def guarded(self: GuardedCallback, *args: Any, **kwargs: Any) -> Any:
        if self.failed:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # whatever it is, a monitor must not end what it watches
            self.failed = True
            reason = f"{type(error).__name__}: {error}"
            logger.warning(f"{type(self).__name__} failed in {event} ({reason}); training goes on without it.")
            return None

    return guarded
