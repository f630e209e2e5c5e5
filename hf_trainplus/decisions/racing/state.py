"""What a race knows between two calls."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.costs import Costs
from hf_trainplus.decisions.racing.design import Design
from hf_trainplus.decisions.racing.volatility import Volatility


@dataclass(frozen=True)
class Candidate:
    """A checkpoint that may still be the best.

    Args:
        checkpoint: its number, usually the global step.
        position: when it was observed, in the unit of patience.
        debt: largest regret, in units of the metric, of having dropped others in its favour within the tolerance.
    """

    checkpoint: int
    position: float
    debt: float = 0.0


@dataclass
class RaceState:
    """All that a race must remember; ``columns`` holds open checkpoints and references only.

    Args:
        design: order in which rows are read now.
        past: how rows moved.
        candidates: open checkpoints, oldest first.
        columns: rows known of each.
        depth: rows of the design's order that each has read; N when it is fully known.
        references: fully known checkpoints, the newest last; the anchor is among them while there is one.
        anchor: fully known checkpoint that the design was drawn from; None before there is one.
        kept: checkpoints whose weights the driver keeps.
        costs: what reading, loading and saving take.
        spent: rows read over capacity since the last anchor.
        observations: checkpoints observed.
        last: number of the newest checkpoint observed, -1 before any.
        first_position: place of the first observation on patience's scale.
        reset_position: place of the last improvement beyond the threshold.
        best_value: exact metric of the best so far, known while every winner is read fully.
        pairs: (checkpoint, row) pairs evaluated.
        reloads: times that kept weights had to be loaded.
        reload_seconds: time these took, as far as measured.
        full_reason: why every row is read from now on; None while racing.
    """

    design: Design
    past: Volatility
    candidates: list[Candidate] = field(default_factory=list)
    columns: dict[int, Column] = field(default_factory=dict)
    depth: dict[int, int] = field(default_factory=dict)
    references: list[int] = field(default_factory=list)
    anchor: int | None = None
    kept: list[int] = field(default_factory=list)
    costs: Costs = field(default_factory=Costs)
    spent: int = 0
    observations: int = 0
    last: int = -1
    first_position: float = 0.0
    reset_position: float = 0.0
    best_value: float | None = None
    pairs: int = 0
    reloads: int = 0
    reload_seconds: float = 0.0
    full_reason: str | None = None

    @property
    def size(self) -> int:
        """Number of rows N."""
        return self.design.size

    @property
    def open(self) -> tuple[int, ...]:
        """Open checkpoints, oldest first."""
        return tuple(candidate.checkpoint for candidate in self.candidates)

    def candidate(self, checkpoint: int) -> Candidate:
        """Return the open candidate of that number."""
        return next(item for item in self.candidates if item.checkpoint == checkpoint)

    def full(self, checkpoint: int) -> bool:
        """True when every row of the checkpoint is known."""
        return self.depth.get(checkpoint, 0) == self.size

    def drop(self, checkpoint: int) -> None:
        """Take a checkpoint out of the race; its rows stay until ``forget``."""
        self.candidates = [item for item in self.candidates if item.checkpoint != checkpoint]

    def forget(self) -> None:
        """Forget the rows of checkpoints that are neither open nor references."""
        needed = {*self.open, *self.references}
        self.columns = {key: column for key, column in self.columns.items() if key in needed}
        self.depth = {key: depth for key, depth in self.depth.items() if key in needed}

    def snapshot(self) -> RaceState:
        """Return a copy that later changes of this state do not reach; rows are shared, since they are only added."""
        return replace(
            self,
            candidates=list(self.candidates),
            columns=dict(self.columns),
            depth=dict(self.depth),
            references=list(self.references),
            kept=list(self.kept),
        )
