"""How our callbacks are tied to a Trainer that they are attached to: through public names, and undone again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerState
from transformers.trainer_callback import DefaultFlowCallback

Around = Callable[..., Any]


def stand_before_trackers(trainer: Trainer, callback: TrainerCallback) -> None:
    """Put a callback right behind the default flow, so that trackers see what it adds to ``logs``.

    A callback that the trainer has already is moved.
    """
    callbacks = trainer.callback_handler.callbacks
    if callback in callbacks:
        callbacks.remove(callback)
    flow = [place for place, other in enumerate(callbacks) if isinstance(other, DefaultFlowCallback)]
    callbacks.insert(flow[0] + 1 if flow else 0, callback)


def put_around(owner: Any, name: str, around: Around) -> None:
    """Replace a bound method of one object by ``around(original, *args, **kwargs)``.

    Only this object changes, not its class; a second wrapper goes around the first.
    """
    original = getattr(owner, name)

    @wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(owner, name, wrapped)


def is_training_log(logs: Mapping[str, Any]) -> bool:
    """Tell the Trainer's own log of training (at its logging steps) from that of an evaluation or of the end."""
    return "loss" in logs and not any(key.startswith("eval_") for key in logs)


def add_to_log(logs: dict[str, Any], state: TrainerState, values: Mapping[str, float]) -> None:
    """Add values to a log that is under way: to what later callbacks see and to the history's copy of it."""
    logs.update(values)
    if state.log_history and state.log_history[-1].get("step") == state.global_step:
        state.log_history[-1].update(values)
