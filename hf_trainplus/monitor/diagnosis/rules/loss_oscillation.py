"""Does the training loss swing without getting anywhere?"""

from __future__ import annotations

import numpy as np

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict
from hf_trainplus.monitor.robust import detrended, falling_fit, robust_spread


class LossOscillationRule(DiagnosisRule):
    """Found when the logged loss scatters around its course by more than ``spread`` of its level.

    Its course is a line or a fall of any shape, whichever it keeps closer to: a curve that falls steeply and then
    flattens does not scatter.

    A loss that turns at nearly every log alternates, which is a learning rate too high; one that scatters without a
    pattern is noise of small batches. The turning points of a random series are 2/3 of its points with variance
    (16 n - 29) / 90 (Bienaymé 1874; Kendall, Stuart and Ord, The Advanced Theory of Statistics, vol. 3).

    Args:
        spread: robust standard deviation around the course over the median loss.
        last: newest logs that are judged.
        least: logs below which the answer is unknown.
    """

    name = "loss_oscillation"

    def __init__(self, *, spread: float = 0.15, last: int = 100, least: int = 12) -> None:
        self.spread = spread
        self.last = last
        self.least = least

    def check(self, evidence: Evidence) -> Verdict:
        """Judge the newest logs."""
        values = evidence.train_loss.finite().values[-self.last :]
        if len(values) < self.least:
            return self.unknown(f"{len(values)} training losses are logged; {self.least} are needed.")
        level = float(np.median(np.abs(values)))
        if level == 0:
            return self.unknown("the loss is 0.")
        relative = min(robust_spread(detrended(values)), robust_spread(values - falling_fit(values))) / level
        alternating = _turning_excess(values) > 2.33
        cause = (
            "it turns at nearly every log: lower learning_rate, or a longer warmup"
            if alternating
            else ("raise gradient_accumulation_steps or the batch, or lower learning_rate")
        )
        return self.verdict(
            relative >= self.spread,
            f"the training loss scatters by {100 * relative:.0f} % of its level over the last {len(values)} logs.",
            next_step=f"{cause}.",
            evidence={"relative_spread": relative, "alternating": float(alternating)},
        )


def _turning_excess(values: np.ndarray) -> float:
    """Return the standard score of the number of turning points against a random series."""
    n, steps = len(values), np.diff(values)
    turns = int((steps[1:] * steps[:-1] < 0).sum())
    return float((turns - 2 * (n - 2) / 3) / np.sqrt((16 * n - 29) / 90))
