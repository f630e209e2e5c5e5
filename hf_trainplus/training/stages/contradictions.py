"""What of a plan or of its stage's options is other than in the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def differences(saved: Any, now: Any, path: str = "") -> list[str]:
    """Name everything that differs between two plans, or between two sets of options.

    Args:
        saved: plain values of the checkpoint.
        now: plain values of today.
        path: where they stand, for messages.

    Example:
        >>> differences({"stages": [{"name": "a", "learning_rate": 0.1}]}, {"stages": [{"name": "a"}]})
        ['stages[0].learning_rate is 0.1 in the checkpoint and not given now']
    """
    if isinstance(saved, Mapping) and isinstance(now, Mapping):
        found = []
        for key in dict.fromkeys([*saved, *now]):
            found += differences(saved.get(key), now.get(key), f"{path}.{key}".removeprefix("."))
        return found
    if isinstance(saved, list) and isinstance(now, list) and len(saved) == len(now):
        return [one for place in range(len(now)) for one in differences(saved[place], now[place], f"{path}[{place}]")]
    if isinstance(saved, list) and isinstance(now, list) and all(isinstance(one, Mapping) for one in [*saved, *now]):
        return [f"{path} are {_names(saved)} in the checkpoint and {_names(now)} now"]
    return [] if saved == now else [f"{path} is {_text(saved)} in the checkpoint and {_text(now)} now"]


def contradiction(checkpoint: str, found: list[str]) -> ValueError:
    """Return the error that names what contradicts a checkpoint."""
    lines = "; ".join(found)
    return ValueError(
        f"{checkpoint} contradicts the options: {lines}. Put them back, or set plan_on_resume='replace' to go on with "
        "the new ones."
    )


def _text(value: Any) -> str:
    return "not given" if value is None else repr(value)


def _names(stages: list[Any]) -> str:
    return ", ".join(str(stage.get("name")) for stage in stages)
