"""By how much an evaluation improves on the best before it, as an interval of the paired difference.

Levels of two samples differ by chance; on the same rows most of that chance cancels out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hf_trainplus.decisions.estimate import estimate_difference
from hf_trainplus.decisions.estimators.quantiles import critical_value
from hf_trainplus.decisions.race import RaceVerdict
from hf_trainplus.decisions.subset import Subset
from hf_trainplus.results import ExampleResults
from hf_trainplus.training.best import is_better

Bounds = tuple[float | None, float | None]


def log_gain(metrics: dict[str, Any], key: str, bounds: Bounds) -> None:
    """Log the bounds that are known, under ``KEY_gain_ci_low`` and ``KEY_gain_ci_high``; positive is better."""
    for side, bound in zip(("low", "high"), bounds, strict=True):
        if bound is not None:
            metrics[f"{key}_gain_ci_{side}"] = bound


def raced_gain(verdict: RaceVerdict, confidence: float) -> Bounds:
    """Return the bounds of the newcomer's improvement over the best open candidate that it met.

    Args:
        verdict: what the race says of the newcomer.
        confidence: level of the interval.

    Returns:
        Both bounds; the upper one alone where unread rows settled the comparison; nothing where there was none.
    """
    met = [record for record in verdict.records if record.second == verdict.checkpoint]
    estimated = {record.first: record for record in met if record.difference is not None and record.se is not None}
    if not estimated:
        most = [record.regret for record in met if record.loser == record.second and record.regret is not None]
        return None, min(most, default=None)
    worst = max(estimated.values(), key=lambda record: record.difference or 0.0)
    half = critical_value(confidence) * (worst.se or 0.0)
    return -(worst.difference or 0.0) - half, -(worst.difference or 0.0) + half


class SubsetGains:
    """Remembers the rows of the best evaluation of a subset, and compares the next ones with them.

    It knows the loss and metrics that have a score a row; of others it gives no bounds.

    Args:
        metric: name of the watched metric, without prefix.
        greater_is_better: its direction.
    """

    def __init__(self, metric: str, *, greater_is_better: bool) -> None:
        self._metric, self._greater = metric, greater_is_better
        self._best: tuple[float, ExampleResults] | None = None

    def enter(self, value: float, results: ExampleResults, subset: Subset, confidence: float) -> Bounds:
        """Return the bounds of the improvement over the best before, and remember a new best.

        Args:
            value: the metric.
            results: its rows.
            subset: how they were drawn.
            confidence: level of the interval.
        """
        if self._metric != "loss" and self._metric not in results.scores:
            return None, None
        before = self._best
        if is_better(value, None if before is None else before[0], greater_is_better=self._greater):
            self._best = (value, results)
        if before is None or not np.array_equal(np.sort(before[1].index), np.sort(results.index)):
            return None, None
        found = estimate_difference(results, before[1], self._metric, subset=subset, confidence=confidence)
        if found.ci_low is None or found.ci_high is None:
            return None, None
        return (found.ci_low, found.ci_high) if self._greater else (-found.ci_high, -found.ci_low)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs for the same bounds: arrays and numbers."""
        if self._best is None:
            return {}
        value, rows = self._best
        state = {"value": value, "index": rows.index, "loss_sum": rows.loss_sum, "target_count": rows.target_count}
        return state | ({} if self._metric == "loss" else {"score": rows.scores[self._metric]})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        if "value" not in state:
            return
        scores = {self._metric: state["score"]} if "score" in state else {}
        rows = ExampleResults(state["index"], state["loss_sum"], state["target_count"], scores=scores)
        self._best = (float(state["value"]), rows)
