"""Keep trainer_state.json strict JSON: NaN and infinity become the texts "NaN", "Infinity" and "-Infinity"."""

from __future__ import annotations

import json
import math
import os
import tempfile
from typing import TYPE_CHECKING, Any

from hf_trainplus.training.checkpoints.files import replace_text

if TYPE_CHECKING:
    from transformers import TrainerState

_TEXT_OF = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_VALUE_OF = {text: float(text) for text in _TEXT_OF.values()}


def to_strict(value: Any) -> Any:
    """Replace non-finite floats by their names, in nested lists and dictionaries.

    Example:
        >>> to_strict({"loss": float("nan"), "step": 3})
        {'loss': 'NaN', 'step': 3}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return _TEXT_OF[str(value)]
    if isinstance(value, dict):
        return {key: to_strict(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [to_strict(inner) for inner in value]
    return value


def from_strict(value: Any) -> Any:
    """Undo ``to_strict``.

    Example:
        >>> from_strict(["-Infinity", "text"])
        [-inf, 'text']
    """
    if isinstance(value, str):
        return _VALUE_OF.get(value, value)
    if isinstance(value, dict):
        return {key: from_strict(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [from_strict(inner) for inner in value]
    return value


def text_of(state: TrainerState) -> str:
    """Return what ``save_to_json`` of a state writes, as strict JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.json")
        write_state(state, path)
        with open(path, encoding="utf-8") as file:
            return file.read()


def write_state(state: TrainerState, path: str) -> None:
    """Write a state as ``save_to_json`` does, as strict JSON."""
    state.save_to_json(path)
    make_file_strict(path)


def make_file_strict(path: str) -> None:
    """Rewrite a JSON file in which Python wrote NaN or Infinity; other files are left untouched."""
    if not os.path.isfile(path):
        return
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if "NaN" not in text and "Infinity" not in text:
        return
    strict = json.dumps(to_strict(json.loads(text)), indent=2, sort_keys=True, allow_nan=False) + "\n"
    if strict == text:
        return
    replace_text(path, strict)


def restore_state(state: TrainerState) -> None:
    """Turn the texts of a state that was read from a strict file back into floats."""
    state.log_history = from_strict(state.log_history)
    state.best_metric = from_strict(state.best_metric)
    state.stateful_callbacks = from_strict(state.stateful_callbacks)
