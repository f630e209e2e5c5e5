"""Does evaluation take too much of the run?"""

from __future__ import annotations

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rules.time_share import TimeShareRule, stretched


class EvaluationBoundRule(TimeShareRule):
    """Found when evaluation takes more than ``share`` (default 0.25) of the time."""

    name = "evaluation_bound"
    parts = ("evaluation",)
    what = "evaluation"
    default_share = 0.25

    def advice(self, share: float, evidence: Evidence) -> str:
        """Name the race, and the interval at which evaluation would take 10 %, or less where ``share`` is low."""
        steps = stretched(evidence.settings.eval_steps, share, self.target(0.1))
        longer = "" if steps is None else f", or eval_steps {evidence.settings.eval_steps:g} -> {steps}"
        return f"eval_mode='race' evaluates the least that settles each decision{longer}."
