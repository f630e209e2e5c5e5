"""Race state as numpy arrays and JSON values, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hf_trainplus import __version__
from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.config import RaceConfig
from hf_trainplus.decisions.racing.costs import Costs
from hf_trainplus.decisions.racing.design import Design
from hf_trainplus.decisions.racing.state import Candidate, RaceState
from hf_trainplus.decisions.racing.volatility import Volatility

_FORMAT = 1
_PLAIN = (
    "references", "anchor", "kept", "spent", "observations", "last", "first_position", "reset_position", "best_value",
    "pairs", "reloads", "reload_seconds", "full_reason",
)  # fmt: skip


def saved_state(state: RaceState, metric: str, config: RaceConfig, fingerprint: str | None) -> dict[str, Any]:
    """Return the state, nested; leaves are numpy arrays or JSON values."""
    return {
        "format": _FORMAT,
        "version": __version__,
        "metric": metric,
        "seed": config.seed,
        "rows_total": state.size,
        "fingerprint": fingerprint,
        "design": state.design.state_dict(),
        "past": state.past.state_dict(),
        "candidates": [asdict(candidate) for candidate in state.candidates],
        "columns": {str(key): column.state_dict() for key, column in state.columns.items()},
        "depth": {str(key): depth for key, depth in state.depth.items()},
        "costs": asdict(state.costs),
        **{name: getattr(state, name) for name in _PLAIN},
    }


def restore_state(
    saved: Mapping[str, Any], size: int, metric: str, config: RaceConfig, fingerprint: str | None
) -> RaceState:
    """Rebuild the state that ``saved_state`` wrote.

    Raises:
        ValueError: it was written by another format, or for another evaluation set, metric, seed or number of rows.
    """
    wanted = {
        "format": _FORMAT,
        "fingerprint": fingerprint,
        "rows_total": size,
        "metric": metric,
        "seed": config.seed,
    }
    for name, value in wanted.items():
        if saved[name] != value:
            raise ValueError(
                f"the saved race has {name}={saved[name]!r} and this one {value!r}; a race goes on only over the same "
                "evaluation set, metric and seed."
            )
    plain: dict[str, Any] = {
        name: list(saved[name]) if isinstance(saved[name], list) else saved[name] for name in _PLAIN
    }
    return RaceState(
        design=Design.from_state(saved["design"]),
        past=Volatility(**{name: np.array(array) for name, array in saved["past"].items()}),
        candidates=[Candidate(**candidate) for candidate in saved["candidates"]],
        columns={int(key): Column.from_state(size, column) for key, column in saved["columns"].items()},
        depth={int(key): int(depth) for key, depth in saved["depth"].items()},
        costs=Costs(**saved["costs"]),
        **plain,
    )


def write_state(path: str | Path, saved: Mapping[str, Any]) -> None:
    """Write a saved state as one ``.npz`` without pickles: arrays as they are, the rest as JSON."""
    arrays: dict[str, Any] = {}
    plain = _split(saved, "", arrays)
    with Path(path).open("wb") as file:
        np.savez(file, allow_pickle=False, json=np.array(json.dumps(plain)), **arrays)


def read_state(path: str | Path) -> dict[str, Any]:
    """Read what ``write_state`` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        plain = json.loads(str(stored["json"]))
        arrays = {name: stored[name] for name in stored.files if name != "json"}
    restored: dict[str, Any] = _join(plain, arrays)
    return restored


def _split(value: Any, place: str, arrays: dict[str, Any]) -> Any:
    if isinstance(value, np.ndarray):
        arrays[place] = value
        return {"array": place}
    if isinstance(value, Mapping):
        return {key: _split(item, f"{place}.{key}", arrays) for key, item in value.items()}
    return value


def _join(value: Any, arrays: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"array"}:
            return arrays[value["array"]]
        return {key: _join(item, arrays) for key, item in value.items()}
    return value
