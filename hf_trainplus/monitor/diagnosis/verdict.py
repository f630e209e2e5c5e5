"""What a rule says: found, clear, or not enough to tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Outcome = Literal["found", "clear", "unknown"]
Severity = Literal["problem", "note"]


@dataclass(frozen=True)
class Verdict:
    """The verdict of one rule.

    Args:
        rule: the rule's name.
        outcome: ``found``; ``clear`` when the evidence speaks against it; ``unknown`` when it does not suffice.
        message: one sentence with the figures.
        next_step: the next thing to do when found, else "".
        evidence: the figures by name.
        severity: a ``note`` says what limits the run without anything being wrong.

    Example:
        >>> Verdict("saving_bound", "clear", "1 % of the time is saving.").to_json()["outcome"]
        'clear'
    """

    rule: str
    outcome: Outcome
    message: str
    next_step: str = ""
    evidence: Mapping[str, float] = field(default_factory=dict)
    severity: Severity = "problem"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self) | {"evidence": dict(self.evidence)}
