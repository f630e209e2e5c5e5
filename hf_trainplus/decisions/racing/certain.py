"""What is certain about a difference before every row is read.

A 0/1 score of a known row can move by at most one, and a cross entropy cannot fall under 0. So the rows that one
checkpoint has still to read bound how far the difference can move, whatever they hold; no probability is involved.
"""

from __future__ import annotations

import numpy as np

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.metrics import AdditiveMetric, LossMetric, ScoreMetric


def certain_range(first: Column, second: Column, metric: AdditiveMetric) -> tuple[float, float]:
    """Return the least and the largest difference of the summed first columns that unread rows still allow.

    Only the sign has the metric's meaning: for a loss the difference is of summed losses, over equal targets.

    Args:
        first: any column.
        second: any column.
        metric: gives the bounds of one row.

    Returns:
        ``(low, high)``, oriented so that positive means that ``first`` is worse; infinite where no bound is known.

    Example:
        >>> from hf_trainplus.results import ExampleResults
        >>> metric = ScoreMetric("error", greater_is_better=False, lower=0.0, upper=1.0)
        >>> known, partly = Column.empty(3, 1), Column.empty(3, 1)
        >>> table = ExampleResults([0, 1, 2], [2.0, 0.1, 0.1], [1, 1, 1], scores={"error": [1, 0, 0]})
        >>> known.add(table, metric.columns(table))
        >>> partly.add(table.take([0, 2]), metric.columns(table.take([0, 2])))
        >>> certain_range(partly, known, metric)
        (0.0, 1.0)
    """
    if not isinstance(metric, LossMetric | ScoreMetric) or not (np.isfinite(metric.lower) or np.isfinite(metric.upper)):
        return -np.inf, np.inf
    low_a, high_a = _extremes(first, metric)
    low_b, high_b = _extremes(second, metric)
    low, high = low_a - high_b, high_a - low_b
    return (-high, -low) if metric.greater_is_better else (low, high)


def _extremes(column: Column, metric: LossMetric | ScoreMetric) -> tuple[float, float]:
    missing = len(column.seen) - column.count
    if not missing:
        return column.first_sum, column.first_sum
    return column.first_sum + metric.lower * missing, column.first_sum + metric.upper * missing
