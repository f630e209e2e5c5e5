"""How a race decides: bounds, looks, candidates, tolerance."""

from __future__ import annotations

from dataclasses import dataclass

LOOKS = (0.02, 0.03, 0.045, 0.07, 0.10, 0.15, 0.22, 0.32, 0.45, 0.60, 0.75, 0.90, 1.0)
BOUND, STRICT_BOUND = 3.5, 4.0


@dataclass(frozen=True)
class RaceConfig:
    """Numbers that fix a race's decisions; the defaults are those measured in ``docs/racing.md``.

    Args:
        strict: bound 4.0 in place of 3.5, for a run-level claim of 95 % over a hundred near ties.
        patience: stop when the best is this old, in units of ``observe``'s ``position``; None never stops.
        threshold: least improvement, in units of the metric, that resets patience; >= 0.
        tolerance: regret allowed, in standard errors of the full-set metric; 0 keeps the stock decision.
        max_candidates: checkpoints kept open at once, >= 2.
        reload: False where kept weights cannot be loaded again (FSDP, DeepSpeed): only live weights are read.
        chunk: world size times batch size; looks are multiples of it.
        seed: of the order in which rows are read.
        looks: shares of N at which differences are judged, rising, the last one 1.
        first_rows: no look before this many rows.
        min_discordant: rows that must differ before a difference is judged by its standard error.
        strata: number of strata.
        full: why every row of every checkpoint is read: the stock decision at the stock cost; None races.
        least_rows: smaller sets are read fully.
        least_seconds: sets whose full evaluation is measured to be shorter are read fully.

    Raises:
        ValueError: a number out of its range.
    """

    strict: bool = False
    patience: float | None = None
    threshold: float = 0.0
    tolerance: float = 0.0
    max_candidates: int = 6
    reload: bool = True
    chunk: int = 1
    seed: int = 0
    looks: tuple[float, ...] = LOOKS
    first_rows: int = 100
    min_discordant: int = 8
    strata: int = 16
    full: str | None = None
    least_rows: int = 500
    least_seconds: float = 5.0

    def __post_init__(self) -> None:
        least = {"patience": 0, "threshold": 0, "tolerance": 0, "max_candidates": 2, "chunk": 1, "first_rows": 2}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and not value >= low:
                raise ValueError(f"{name}={value!r}; allowed are values >= {low}, for example {name}={max(low, 1)}.")
        rising = all(a < b for a, b in zip(self.looks, self.looks[1:], strict=False))
        if not self.looks or self.looks[-1] != 1.0 or self.looks[0] <= 0 or not rising:
            raise ValueError(f"looks={self.looks!r}; allowed are rising shares of N in (0, 1], the last one 1.0.")

    @property
    def bound(self) -> float:
        """Standard errors that a difference must exceed."""
        return STRICT_BOUND if self.strict else BOUND
