"""Has the training loss turned upwards for good?"""

from __future__ import annotations

import numpy as np

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict
from hf_trainplus.monitor.robust import robust_spread, rolling_median


class DivergenceRule(DiagnosisRule):
    """Found when the newest losses lie above the best that was reached by ``rise`` of it and by several spreads.

    Medians over windows are compared, so that one wild batch is no divergence.

    Args:
        rise: of the best level, >= 0.
        spreads: robust standard deviations between neighbouring logs, >= 0.
        least: logs below which the answer is unknown.
    """

    name = "divergence"

    def __init__(self, *, rise: float = 0.2, spreads: float = 3.0, least: int = 15) -> None:
        self.rise = rise
        self.spreads = spreads
        self.least = least

    def check(self, evidence: Evidence) -> Verdict:
        """Judge the newest window against the best."""
        series = evidence.train_loss.finite()
        if len(series) < self.least:
            return self.unknown(f"{len(series)} training losses are logged; {self.least} are needed.")
        width = max(5, len(series) // 10)
        medians = rolling_median(series.values, width)
        best = int(np.argmin(medians))
        low, now = float(medians[best]), float(medians[-1])
        noise = robust_spread(np.diff(series.values)) / np.sqrt(2.0)
        found = now - low > max(self.rise * abs(low), self.spreads * noise)
        step = int(series.steps[best + width - 1])
        return self.verdict(
            found,
            f"the training loss is {now:.4g} and was {low:.4g} around step {step}.",
            next_step=f"go back to a checkpoint before step {step} and lower learning_rate or max_grad_norm.",
            evidence={"loss": now, "best_loss": low, "best_step": float(step)},
        )
