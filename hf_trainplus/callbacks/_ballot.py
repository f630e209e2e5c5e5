"""What one rank finds at a boundary, as a vector of numbers, and what all ranks together then do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hf_trainplus.budget.budget import LIMIT_NAMES
from hf_trainplus.budget.headroom import DEADLINE
from hf_trainplus.budget.keeper import Verdict
from hf_trainplus.budget.measured import PHASES, Phase
from hf_trainplus.budget.stops import StopReason

_REASONS = tuple(StopReason)
_LIMITS = (*LIMIT_NAMES, DEADLINE)


@dataclass(frozen=True)
class Decision:
    """What every rank does now.

    Args:
        reason: why the run ends, None to go on.
        limit: the limit that ends it, when one does.
        postpone: what is due moves to the end of the run.
        probe: closing phases to measure now.
        share: mean share of the budget over the ranks, None without a limit.
    """

    reason: StopReason | None
    limit: str | None
    postpone: bool
    probe: tuple[Phase, ...]
    share: float | None


def ballot(reason: StopReason | None, verdict: Verdict) -> list[float]:
    """Write a rank's findings as numbers that can be added up.

    Example:
        >>> one = ballot(None, Verdict("gpu_hours", False, (), 0.75))
        >>> other = ballot(StopReason.SIGNAL, Verdict(None, False, ("save",), 0.25))
        >>> decision = count([a + b for a, b in zip(one, other)])
        >>> decision.reason.value, decision.limit, decision.share
        ('signal', 'gpu_hours', 0.5)
    """
    marks: Sequence[bool] = (
        *(reason is one for one in _REASONS),
        *(verdict.limit == limit for limit in _LIMITS),
        verdict.postpone,
        *(phase in verdict.probe for phase in PHASES),
        verdict.share is not None,
    )
    return [*(float(mark) for mark in marks), verdict.share or 0.0]


def count(sums: Sequence[float]) -> Decision:
    """Read the sums over all ranks: what one rank saw holds for all."""
    reasons, rest = sums[: len(_REASONS)], sums[len(_REASONS) :]
    limits, rest = rest[: len(_LIMITS)], rest[len(_LIMITS) :]
    postpone, probe, (shares, share) = rest[0], rest[1:-2], rest[-2:]
    limit = next((name for name, votes in zip(_LIMITS, limits, strict=True) if votes), None)
    found = {one for one, votes in zip(_REASONS, reasons, strict=True) if votes}
    if limit:
        found.add(StopReason.DEADLINE if limit == DEADLINE else StopReason.BUDGET_SPENT)
    return Decision(
        reason=next((one for one in _REASONS if one in found), None),
        limit=limit,
        postpone=bool(postpone),
        probe=tuple(phase for phase, votes in zip(PHASES, probe, strict=True) if votes),
        share=share / shares if shares else None,
    )
