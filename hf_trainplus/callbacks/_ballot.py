"""What one rank finds at a boundary, as a few numbers, and what all ranks together then do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hf_trainplus.budget.budget import LIMIT_NAMES
from hf_trainplus.budget.keeping.headroom import DEADLINE
from hf_trainplus.budget.keeping.keeper import Verdict
from hf_trainplus.budget.keeping.measured import PHASES, Phase
from hf_trainplus.budget.stops import StopReason

_REASONS = tuple(StopReason)
_LIMITS = (*LIMIT_NAMES, DEADLINE)
_NO_SHARE = -1.0


@dataclass(frozen=True)
class Decision:
    """What every rank does now.

    Args:
        reason: why the run ends, None to go on.
        limit: the limit that ends it, when one does.
        postpone: what is due moves to the end of the run.
        probe: closing phases to measure now.
        share: largest share of the budget over the ranks, None without a limit.
    """

    reason: StopReason | None
    limit: str | None
    postpone: bool
    probe: tuple[Phase, ...]
    share: float | None


def ballot(reason: StopReason | None, verdict: Verdict) -> list[float]:
    """Write a rank's findings as numbers of which the largest counts.

    Example:
        >>> one = ballot(None, Verdict("gpu_hours", False, (), 0.75))
        >>> other = ballot(StopReason.SIGNAL, Verdict(None, False, ("save",), 0.25))
        >>> decision = count(list(map(max, one, other)))
        >>> decision.reason.value, decision.limit, decision.share
        ('signal', 'gpu_hours', 0.75)
    """
    marks: Sequence[bool] = (
        *(reason is one for one in _REASONS),
        *(verdict.limit == limit for limit in _LIMITS),
        verdict.postpone,
        *(phase in verdict.probe for phase in PHASES),
    )
    return [*(float(mark) for mark in marks), _NO_SHARE if verdict.share is None else verdict.share]


def count(votes: Sequence[float]) -> Decision:
    """Read the largest votes over all ranks: what one rank saw holds for all."""
    reasons, rest = votes[: len(_REASONS)], votes[len(_REASONS) :]
    limits, rest = rest[: len(_LIMITS)], rest[len(_LIMITS) :]
    postpone, probe, share = rest[0], rest[1:-1], rest[-1]
    limit = next((name for name, vote in zip(_LIMITS, limits, strict=True) if vote), None)
    found = {one for one, vote in zip(_REASONS, reasons, strict=True) if vote}
    if limit:
        found.add(StopReason.DEADLINE if limit == DEADLINE else StopReason.BUDGET_SPENT)
    return Decision(
        reason=next((one for one in _REASONS if one in found), None),
        limit=limit,
        postpone=bool(postpone),
        probe=tuple(phase for phase, vote in zip(PHASES, probe, strict=True) if vote),
        share=None if share == _NO_SHARE else share,
    )
