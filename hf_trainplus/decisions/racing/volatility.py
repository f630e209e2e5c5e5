"""Which rows move: a fading record of every row's values, from full and from partial evaluations alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.results import Float64Array

_FADE = 0.9


@dataclass
class Volatility:
    """Faded count, sum and sum of squares of each row's values over the checkpoints observed.

    It orders the reading and never decides: verdicts rest on the rows of the two checkpoints compared.

    Args:
        count: (N,) faded number of observations of each row.
        total: (N,) faded sum of its values.
        squares: (N,) faded sum of squares.
    """

    count: Float64Array
    total: Float64Array
    squares: Float64Array

    @classmethod
    def empty(cls, size: int) -> Volatility:
        """Return the record of rows that were never seen."""
        return cls(np.zeros(size), np.zeros(size), np.zeros(size))

    def learn(self, column: Column, rows: Float64Array) -> Volatility:
        """Return the record after one more checkpoint; ``rows`` (N,) are its values, used where it was read."""
        seen = column.seen
        values = np.where(seen, rows, 0.0)
        return Volatility(
            self.count * _FADE + seen, self.total * _FADE + values, self.squares * _FADE + values * values
        )

    def distance(self, base: Float64Array) -> Float64Array:
        """(N,) faded sum of squared differences between each row's past values and ``base``."""
        return np.maximum(self.squares - 2 * base * self.total + base * base * self.count, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Return the arrays."""
        return {"count": self.count, "total": self.total, "squares": self.squares}
