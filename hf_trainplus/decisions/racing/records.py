"""What a race reports: one record a comparison for the audit, one verdict a call for the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Basis = Literal["exact", "bound", "certain", "nonfinite", "tolerance", "open"]


@dataclass(frozen=True)
class ComparisonRecord:
    """One comparison of two checkpoints, with all that a reviewer needs to judge it again.

    Args:
        step: checkpoint that was observed when the comparison was made.
        first: older checkpoint of the pair.
        second: newer checkpoint of the pair.
        loser: the one dropped, None while the comparison is open.
        basis: what settled it: every row read (``exact``), the standard error (``bound``), the bounds of unread rows
            (``certain``), a NaN or infinite row (``nonfinite``), the tolerance, or nothing (``open``).
        depth: rows of the design's order that both hold.
        rows_total: number of rows N.
        stratum_rows: rows read a stratum at that depth.
        rows_hash: hash of these rows in the order of reading.
        design: number of the design; its ranks are drawn from ``[seed, design]``.
        seed: the race's seed.
        difference: how much worse ``second`` is, in units of the metric; None when not estimated.
        se: standard error of the difference; None when not estimated.
        z: difference in standard errors, as the normal deviate of the same tail; None when not finite.
        bound: |z| that settles a comparison at this depth.
        discordant: rows on which the two differ; None when not counted.
        regret: most that the metric can lose by dropping the loser, in its units, below 0 where the other is better
            for sure; None while open.
        tolerance: regret allowed, in standard errors of the full-set metric.
        full: which of the two was read fully; its exact mean anchors the difference.
        references: fully known checkpoints on which the difference is regressed, the newest last.
        candidates: checkpoints open before the comparison.
        pairs: (checkpoint, row) pairs evaluated so far.
        stock_pairs: pairs that stock evaluation would have evaluated so far.
        reloads: evaluations so far that needed kept weights.
        reload_seconds: time they took to load, as far as measured.
        mode: "race", "live" (no reloading) or "full".
        environment: what the driver said of precision, batch shape and library version.
    """

    step: int
    first: int
    second: int
    loser: int | None
    basis: Basis
    depth: int
    rows_total: int
    stratum_rows: tuple[int, ...]
    rows_hash: str
    design: int
    seed: int
    difference: float | None
    se: float | None
    z: float | None
    bound: float
    discordant: int | None
    regret: float | None
    tolerance: float
    full: tuple[int, ...]
    references: tuple[int, ...]
    candidates: tuple[int, ...]
    pairs: int
    stock_pairs: int
    reloads: int
    reload_seconds: float
    mode: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return what one JSON line holds."""
        return asdict(self) | {"kind": "comparison", "environment": dict(self.environment)}


@dataclass(frozen=True)
class LevelVerdict:
    """Whether a checkpoint reaches a level of the metric.

    Args:
        level: the level asked for.
        reached: the metric is at the level or better.
        value: estimate of the metric, always on the side of the level that ``reached`` says.
        se: its standard error over the unread rows, 0 when exact.
        exact: every row was read.
    """

    level: float
    reached: bool
    value: float | None
    se: float | None
    exact: bool


@dataclass(frozen=True)
class RaceVerdict:
    """State of the race after one call; a level here is never compared with another: use ``best`` and ``stop``.

    Args:
        checkpoint: checkpoint observed, or the best one for ``settle`` and ``finish``; None when no checkpoint is left.
        best: the best checkpoint, None while several are open or none is finite.
        candidates: checkpoints that may still be the best, oldest first.
        stop: patience has run out.
        value: estimate of the metric of ``checkpoint``; None when it is not finite.
        se: standard error of the estimate over the unread rows, 0 when exact; None without a value.
        rows: rows of ``checkpoint`` that were read.
        rows_total: number of rows N.
        exact: every row was read.
        reason: why every row was read although this is a race, or the tolerance that would have made a near tie cheap.
        records: comparisons made by this call.
        levels: for each level asked for, whether the checkpoint reaches it.
    """

    checkpoint: int | None
    best: int | None
    candidates: tuple[int, ...]
    stop: bool
    value: float | None
    se: float | None
    rows: int
    rows_total: int
    exact: bool
    reason: str | None
    records: tuple[ComparisonRecord, ...]
    levels: tuple[LevelVerdict, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return what one JSON line holds beside those of ``records``."""
        names = ("checkpoint", "best", "candidates", "stop", "value", "se", "rows", "rows_total", "exact", "reason")
        plain = {name: getattr(self, name) for name in names}
        return plain | {"kind": "verdict", "levels": [asdict(level) for level in self.levels]}
