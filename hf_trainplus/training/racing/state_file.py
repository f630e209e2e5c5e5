"""Nested plain values and arrays in one file: what a race writes into a checkpoint."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

FILE = "trainplus_race.npz"
_ARRAY = "__array__"


def write_state(path: str, state: Any) -> None:
    """Write nested dictionaries, lists, plain values and numpy arrays, without pickling anything.

    Example:
        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "state.npz")
        >>> write_state(path, {"depth": 3, "rows": [np.arange(2)], "best": None})
        >>> read_state(path)
        {'depth': 3, 'rows': [array([0, 1])], 'best': None}
    """
    arrays: dict[str, Any] = {}
    skeleton = json.dumps(_take_arrays(state, arrays))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.tmp"
    with open(temporary, "wb") as file:
        np.savez(file, skeleton=np.array(skeleton), **arrays)
    os.replace(temporary, path)


def read_state(path: str) -> Any:
    """Read what ``write_state`` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        return _put_arrays(json.loads(str(stored["skeleton"])), stored)


def _take_arrays(value: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(value, np.ndarray):
        name = f"array_{len(arrays)}"
        arrays[name] = value
        return {_ARRAY: name}
    if isinstance(value, dict):
        keys = [[key, _take_arrays(inner, arrays)] for key, inner in value.items()]
        return {"__dict__": keys}  # keys may be whole numbers, which JSON would turn into text
    if isinstance(value, (list, tuple)):
        return [_take_arrays(inner, arrays) for inner in value]
    return value.item() if isinstance(value, np.generic) else value


def _put_arrays(value: Any, stored: Any) -> Any:
    if isinstance(value, dict) and _ARRAY in value:
        return stored[value[_ARRAY]]
    if isinstance(value, dict):
        return {key: _put_arrays(inner, stored) for key, inner in value["__dict__"]}
    if isinstance(value, list):
        return [_put_arrays(inner, stored) for inner in value]
    return value
