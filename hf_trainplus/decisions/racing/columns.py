"""What is known of one checkpoint: the rows it was evaluated on, never computed twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.results import ExampleResults, Float64Array, Int64Array


@dataclass
class Column:
    """Rows of one checkpoint; rows are added, never changed.

    Args:
        values: (N, k) the metric's additive columns, NaN where not seen.
        loss: (N,) per-target loss of the row, NaN where not seen or without targets; it tells which rows move.
        seen: (N,) True where the row was evaluated.
        nonfinite: a seen row has a NaN or infinite value; such a checkpoint loses every comparison.
        count: number of rows seen.
        first_sum: sum of the seen rows' first column.
    """

    values: Float64Array
    loss: Float64Array
    seen: npt.NDArray[np.bool_]
    nonfinite: bool = False
    count: int = 0
    first_sum: float = 0.0
    _total: Float64Array | None = field(default=None, repr=False)

    @classmethod
    def empty(cls, size: int, width: int) -> Column:
        """Return a column of ``size`` unseen rows."""
        return cls(np.full((size, width), np.nan), np.full(size, np.nan), np.zeros(size, dtype=bool))

    def add(self, results: ExampleResults, values: Float64Array) -> None:
        """Enter the rows of one evaluation; ``values`` (n, k) belong to ``results.index``."""
        rows = results.index
        self.values[rows] = values
        with np.errstate(divide="ignore", invalid="ignore"):
            self.loss[rows] = results.loss_sum / results.target_count
        self.seen[rows] = True
        self.count += len(rows)
        self.first_sum += float(values[:, 0].sum())
        self.nonfinite = self.nonfinite or not bool(np.isfinite(values).all())
        self._total = None

    @property
    def full(self) -> bool:
        """True when every row is known."""
        return self.count == len(self.seen)

    @property
    def means(self) -> Float64Array:
        """(k,) exact means of a fully known column, summed in row order so that order of evaluation cannot matter."""
        if self._total is None:
            self._total = self.values.mean(axis=0)
        return self._total

    def missing(self, rows: Int64Array) -> Int64Array:
        """Return those of ``rows`` that were not evaluated yet, in the same order."""
        return rows[~self.seen[rows]]

    def state_dict(self) -> dict[str, Any]:
        """Return the seen rows only, as arrays."""
        rows = np.flatnonzero(self.seen)
        return {
            "rows": rows.astype(np.uint32),
            "values": self.values[rows],
            "loss": self.loss[rows],
            "first_sum": self.first_sum,
        }

    @classmethod
    def from_state(cls, size: int, state: dict[str, Any]) -> Column:
        """Rebuild what ``state_dict`` wrote."""
        values = np.asarray(state["values"], dtype=np.float64)
        column = cls.empty(size, values.shape[1])
        rows = np.asarray(state["rows"], dtype=np.int64)
        column.values[rows], column.loss[rows], column.seen[rows] = values, state["loss"], True
        column.count, column.first_sum = len(rows), float(state["first_sum"])
        column.nonfinite = not bool(np.isfinite(values).all())
        return column
