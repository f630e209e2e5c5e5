"""Measured costs: they decide only when a candidate is settled, never how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import log2

_MEASURED = 3


@dataclass(frozen=True)
class Costs:
    """Least measured seconds of reading a row, loading weights and saving them; None while not measured.

    The least of the first three measurements of each is kept for the whole run: the first ones warm up, and a resumed
    run must decide alike. Ratios are rounded to powers of two, so that two measurements of the same machine lead to
    the same decisions.

    Args:
        row_seconds: seconds a row of evaluation.
        load_seconds: seconds to load kept weights and to restore the live ones.
        save_seconds: seconds to keep the live weights.
        times: how often each was measured.

    Example:
        >>> Costs(row_seconds=0.01, load_seconds=1.3, save_seconds=0.3).load_rows
        128
    """

    row_seconds: float | None = None
    load_seconds: float | None = None
    save_seconds: float | None = None
    times: Mapping[str, int] = field(default_factory=dict)

    def with_rows(self, seconds: float | None, rows: int) -> Costs:
        """Return the costs after an evaluation of ``rows`` rows; 0 seconds were a look-up and measure nothing."""
        return self._with("row_seconds", seconds / rows if seconds and rows else None)

    def with_load(self, seconds: float | None) -> Costs:
        """Return the costs after a load."""
        return self._with("load_seconds", seconds)

    def with_save(self, seconds: float | None) -> Costs:
        """Return the costs after a save."""
        return self._with("save_seconds", seconds)

    def _with(self, name: str, seconds: float | None) -> Costs:
        times = self.times.get(name, 0)
        if seconds is None or times >= _MEASURED:
            return self
        known = getattr(self, name)
        least = seconds if known is None else min(known, seconds)
        return replace(self, **{name: least}, times={**self.times, name: times + 1})

    @property
    def load_rows(self) -> int | None:
        """Rows that could be read in the time of one load; None while not measured."""
        if self.row_seconds is None or self.load_seconds is None:
            return None
        return self._as_rows(self.load_seconds)

    @property
    def keep_rows(self) -> int | None:
        """Rows that could be read in the time of one save and one load; None while not all is measured."""
        if self.row_seconds is None or self.save_seconds is None or self.load_seconds is None:
            return None
        return self._as_rows(self.save_seconds + self.load_seconds)

    def _as_rows(self, seconds: float) -> int:
        if not seconds or not self.row_seconds:
            return 0
        return int(2 ** round(log2(max(seconds / self.row_seconds, 0.5))))
