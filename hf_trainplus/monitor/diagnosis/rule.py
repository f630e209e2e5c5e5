"""The plug point of the diagnosis: one class, one method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.verdict import Outcome, Severity, Verdict


class DiagnosisRule(ABC):
    """Judges one question about a run. Thresholds are arguments of the rule's constructor.

    A rule is pure: it reads the evidence and changes nothing. Without enough evidence it says ``unknown``, never
    ``clear``.

    Example:
        >>> class Slow(DiagnosisRule):
        ...     name = "slow"
        ...     def check(self, evidence):
        ...         seconds = evidence.step_seconds
        ...         if seconds is None:
        ...             return self.unknown("no step was timed.")
        ...         return self.verdict(seconds > 10, f"a step takes {seconds:.0f} s.", next_step="profile a step.")
        >>> Slow().check(Evidence(step_seconds=12.0)).outcome
        'found'
    """

    name: ClassVar[str]
    severity: ClassVar[Severity] = "problem"

    @abstractmethod
    def check(self, evidence: Evidence) -> Verdict:
        """Judge the evidence."""

    def unknown(self, reason: str) -> Verdict:
        """Say that the evidence does not suffice, and why."""
        return Verdict(self.name, "unknown", reason, severity=self.severity)

    def verdict(
        self, found: bool, message: str, *, next_step: str = "", evidence: Mapping[str, float] | None = None
    ) -> Verdict:
        """Say found or clear."""
        outcome: Outcome = "found" if found else "clear"
        return Verdict(self.name, outcome, message, next_step if found else "", evidence or {}, self.severity)
