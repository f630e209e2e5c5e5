"""Has learning come to a halt?"""

from __future__ import annotations

import numpy as np

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict
from hf_trainplus.monitor.robust import theil_sen


class PlateauRule(DiagnosisRule):
    """Found when the loss can have fallen by no more than ``improvement`` over the newest logs.

    The lower end of the slope's interval decides, so that a noisy loss that may still be falling is not called flat.
    Evaluation losses are judged where there are enough, else training losses.

    Args:
        improvement: of the loss's level over the newest ``last`` logs, >= 0.
        last: logs that are judged, >= 3.
        confidence: level of the slope's interval.
    """

    name = "plateau"
    severity = "note"

    def __init__(self, *, improvement: float = 0.01, last: int = 20, confidence: float = 0.95) -> None:
        self.improvement = improvement
        self.last = last
        self.confidence = confidence

    def check(self, evidence: Evidence) -> Verdict:
        """Judge the newest losses."""
        evaluated, trained = evidence.eval_loss.finite(), evidence.train_loss.finite()
        series, what = (evaluated, "evaluation") if len(evaluated) >= self.last else (trained, "training")
        if len(series) < self.last:
            return self.unknown(f"{len(series)} losses are logged; {self.last} are needed.")
        values = series.values[-self.last :]
        level = float(np.median(np.abs(values)))
        if level == 0:
            return self.unknown("the loss is 0.")
        slope = theil_sen(np.arange(self.last), values, confidence=self.confidence)
        fallen, at_most = -slope.value * (self.last - 1) / level, -slope.low * (self.last - 1) / level
        return self.verdict(
            at_most < self.improvement and -slope.high * (self.last - 1) / level > -self.improvement,
            f"the {what} loss fell by {100 * fallen:.2g} %, at most {100 * at_most:.2g} %, over {self.last} logs.",
            next_step="stop (PatienceCallback), lower learning_rate, or go to the next stage.",
            evidence={"fallen_share": fallen, "fallen_share_at_most": at_most},
        )
