"""Does the evaluation loss rise while the training loss falls?"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from hf_trainplus.monitor.diagnosis.evidence import Evidence, Series
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict


class OverfittingRule(DiagnosisRule):
    """Found when evaluation has got worse since its best, beyond its interval, while training got better.

    With the evaluations' intervals in the logs, the rise is compared with the standard errors of both evaluations,
    taken as independent: evaluations of one set are not, and the true interval of the rise is narrower. Without
    intervals, ``in_a_row`` evaluations above the best are asked for. The message gives the gap between evaluation
    and training with its interval.

    Args:
        confidence: level of the interval of the rise, above 0 and below 1.
        logged_confidence: level of the intervals in the logs; None takes the run's ``eval_confidence``, or 0.95.
        in_a_row: evaluations above the best, where there is no interval, >= 1.
        least: evaluations below which the answer is unknown.
    """

    name = "overfitting"

    def __init__(
        self, *, confidence: float = 0.95, logged_confidence: float | None = None, in_a_row: int = 3, least: int = 4
    ) -> None:
        self.confidence = confidence
        self.logged_confidence = logged_confidence
        self.in_a_row = in_a_row
        self.least = least

    def check(self, evidence: Evidence) -> Verdict:
        """Judge the newest evaluation against the best."""
        losses = evidence.eval_loss.finite()
        if len(losses) < self.least or len(evidence.train_loss.finite()) < self.least:
            return self.unknown(f"{len(losses)} evaluations are logged; {self.least} are needed, and training losses.")
        best = int(np.argmin(losses.values))
        rise = float(losses.values[-1] - losses.values[best])
        errors = self._standard_errors(evidence, losses)
        if errors is not None:
            reach = NormalDist().inv_cdf(0.5 + self.confidence / 2)
            worse = rise > reach * float(np.hypot(errors[best], errors[-1]))
        else:
            worse = len(losses) - 1 - best >= self.in_a_row and rise > 0
        falling = _level(evidence.train_loss, losses.steps[-1]) < _level(evidence.train_loss, losses.steps[best])
        step = int(losses.steps[best])
        return self.verdict(
            worse and falling,
            f"evaluation loss has risen by {rise:.4g} since step {step} while training loss fell; "
            f"the gap is {self._gap(evidence, losses, errors)}.",
            next_step=f"stop at step {step} (PatienceCallback), more data, weight_decay or dropout.",
            evidence={"rise": rise, "best_step": float(step)},
        )

    def _standard_errors(self, evidence: Evidence, losses: Series) -> np.ndarray | None:
        low, high = (
            dict(zip(end.finite().steps.tolist(), end.finite().values.tolist(), strict=True))
            for end in (evidence.eval_loss_ci_low, evidence.eval_loss_ci_high)
        )
        steps = losses.steps.tolist()
        if any(step not in low or step not in high for step in steps):
            return None
        level = self.logged_confidence or evidence.settings.eval_confidence or 0.95
        reach = NormalDist().inv_cdf(0.5 + level / 2)
        return np.asarray([high[step] - low[step] for step in steps]) / (2 * reach)

    def _gap(self, evidence: Evidence, losses: Series, errors: np.ndarray | None) -> str:
        gap = float(losses.values[-1]) - _level(evidence.train_loss, losses.steps[-1])
        if errors is None:
            return f"{gap:.4g} (no interval is logged)"
        reach = NormalDist().inv_cdf(0.5 + self.confidence / 2) * float(errors[-1])
        return f"{gap:.4g} [{gap - reach:.4g}, {gap + reach:.4g}]"


def _level(train: Series, step: float) -> float:
    """Return the median of the five training losses up to a step."""
    finite = train.finite()
    until = finite.values[finite.steps <= step]
    return float(np.median(until[-5:] if len(until) else finite.values[:5]))
