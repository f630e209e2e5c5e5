"""Check the rules and tell what they found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.rules import RULES
from hf_trainplus.monitor.diagnosis.verdict import Verdict


def diagnose(evidence: Evidence, rules: Iterable[DiagnosisRule] | None = None) -> list[Verdict]:
    """Let every rule judge.

    Args:
        evidence: what is known.
        rules: the rules; all of ``RULES`` with their defaults when None.

    Returns:
        One verdict a rule, in the rules' order.

    Example:
        >>> {verdict.outcome for verdict in diagnose(Evidence())}
        {'unknown'}
    """
    return [rule.check(evidence) for rule in ([make() for make in RULES] if rules is None else rules)]


def tell(verdicts: Sequence[Verdict]) -> str:
    """Write what was found as text, one line a finding, problems first; "" when nothing was found.

    Example:
        >>> print(tell([Verdict("data_bound", "found", "41 % of each step waits for data.", "more workers.")]))
        data_bound: 41 % of each step waits for data. Next: more workers.
    """
    found = [verdict for verdict in verdicts if verdict.outcome == "found"]
    found.sort(key=lambda verdict: verdict.severity == "note")
    return "\n".join(f"{one.rule}: {one.message}{f' Next: {one.next_step}' if one.next_step else ''}" for one in found)
