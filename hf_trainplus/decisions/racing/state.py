"""What a race knows between two calls, and how it is written into a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.design import Design
from hf_trainplus.results import Float64Array


@dataclass(frozen=True)
class Candidate:
    """A checkpoint that may still be the best.

    Args:
        checkpoint: its number, usually the global step.
        position: when it was observed, in the unit of patience.
        depth: rows of the design's order that it has read; N when it is fully known.
        debt: largest possible regret, in units of the metric, of having dropped others in its favour.
    """

    checkpoint: int
    position: float
    depth: int = 0
    debt: float = 0.0


@dataclass
class RaceState:
    """All that a race must remember; ``columns`` holds candidates and references only.

    Args:
        design: order in which rows are read now.
        candidates: open checkpoints, oldest first.
        columns: rows known of each.
        references: fully known checkpoints, the newest last.
        kept: checkpoints whose weights the driver keeps.
        ambiguous: observations since the last reference that left more than one candidate.
        next_reference: observation before which no newcomer is read fully to become a reference.
        observations: checkpoints observed.
        pairs: (checkpoint, row) pairs evaluated.
        reloads: evaluations that needed kept weights.
        reload_seconds: time these took to load, as far as measured.
        first_position: place of the first observation on patience's scale.
        covariates: cache of what the references explain; derived, never saved.
    """

    design: Design
    candidates: list[Candidate] = field(default_factory=list)
    columns: dict[int, Column] = field(default_factory=dict)
    references: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    ambiguous: int = 0
    next_reference: float = 0.0
    observations: int = 0
    pairs: int = 0
    reloads: int = 0
    reload_seconds: float = 0.0
    first_position: float = 0.0
    covariates: tuple[Float64Array, Float64Array] | None = field(default=None, repr=False)

    def snapshot(self) -> RaceState:
        """Return a copy that later changes of this state do not reach; rows are shared, since they are only added."""
        return replace(
            self,
            candidates=list(self.candidates),
            columns=dict(self.columns),
            references=list(self.references),
            kept=list(self.kept),
        )
