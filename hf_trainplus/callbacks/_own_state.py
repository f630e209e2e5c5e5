"""How our callbacks keep and restore their own state in a Trainer's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from transformers import TrainerState


def saved_state(state: TrainerState, name: str, arguments: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """Return what a checkpoint kept for the callback ``name``; empty for a fresh start or a checkpoint without it.

    Args:
        state: as it was restored.
        name: of the callback's class.
        arguments: tell several callbacks of one class apart; upstream lists all that they ever saved.
    """
    if not state.global_step:
        return {}
    entry = entries(state).get(name)
    if isinstance(entry, list):
        entry = ([one for one in entry if one.get("args") == arguments] or entry)[-1]
    saved: Mapping[str, Any] = (entry or {}).get("attributes", {}).get("saved", {})
    return saved


def ensure_entry(state: TrainerState, name: str, entry: Mapping[str, Any]) -> None:
    """Give the callback an entry in the state: upstream's next save fails without one, as after adding a callback."""
    entries(state).setdefault(name, dict(entry))


def entries(state: TrainerState) -> dict[str, Any]:
    """Return the states of callbacks by class name; declared as a list, it is a dict once TrainerState is made."""
    return cast("dict[str, Any]", state.stateful_callbacks)
