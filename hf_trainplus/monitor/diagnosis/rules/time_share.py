"""What evaluation, saving, logging and the host take from training: four rules of one shape, one class each."""

from __future__ import annotations

from abc import abstractmethod

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict


class TimeShareRule(DiagnosisRule):
    """Base of the rules that compare the share of some parts with a threshold.

    Of several ranks the one that spends most on a part counts: the others wait for what it does alone.

    Args:
        share: of wall-clock time, 0 to 1.
        least_steps: steps below which the answer is unknown.
    """

    parts: tuple[str, ...]
    what: str
    default_share: float

    def __init__(self, *, share: float | None = None, least_steps: int = 5) -> None:
        self.share = self.default_share if share is None else share
        self.least_steps = least_steps

    def check(self, evidence: Evidence) -> Verdict:
        """Judge the share."""
        measured = [evidence.largest_share(part) for part in self.parts if part in evidence.shares]
        if not evidence.timed(self.least_steps) or not measured:
            return self.unknown(f"{self.what} was not timed over enough steps.")
        share = min(sum(measured), 1.0)
        return self.verdict(
            share >= self.share,
            f"{100 * share:.0f} % of the time is {self.what}.",
            next_step=self.advice(share, evidence),
            evidence={f"{self.parts[0]}_share": share},
        )

    def target(self, ordinary: float) -> float:
        """Return the share to advise: ``ordinary``, and clearly less than the threshold of a stricter rule."""
        return min(ordinary, 0.4 * self.share)

    @abstractmethod
    def advice(self, share: float, evidence: Evidence) -> str:
        """Return the next thing to do."""


def stretched(steps: float | None, share: float, wanted: float) -> float | None:
    """Return the interval at which something that takes ``share`` of the time would take ``wanted``; None if unknown.

    Example:
        >>> stretched(100, 0.5, 0.05)
        1900
    """
    if steps is None or steps < 1 or share >= 1:
        return None
    return int(steps * (share / (1 - share)) * (1 - wanted) / wanted)
