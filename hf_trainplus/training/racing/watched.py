"""What a race compares, or why the watched metric cannot be raced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hf_trainplus.decisions.race import LossMetric, OpaqueMetric, RaceMetric, ScoreMetric, StatisticMetric
from hf_trainplus.evaluation.metrics.accuracy import Accuracy
from hf_trainplus.evaluation.metrics.base import AdditiveMetric, Metric
from hf_trainplus.evaluation.metrics.ranking import RankMetric
from hf_trainplus.results import Float64Array

_KINDS_OF_ROWS = frozenset({"sequence_classification", "single_label"})
_SHARES = frozenset({"accuracy", "token_accuracy", "exact_match"})
_ROUNDING = 1e-15  # relative: a sum that was divided by the rows and multiplied by them again is off by this at most


@dataclass(frozen=True)
class NotRaced:
    """Why every row of every checkpoint is evaluated although a race was asked for."""

    reason: str


def may_count_tokens(name: str, metrics: Sequence[Metric], loss_kind: str | None) -> bool:
    """Say whether only the rows show what the watched metric is a mean of: an accuracy of rows or of their tokens.

    Args:
        name: the watched metric without prefix.
        metrics: the metric objects of the trainer.
        loss_kind: name of the model's loss formula, None where it is not known.
    """
    watched = next((metric for metric in metrics if metric.primary == name), None)
    return isinstance(watched, Accuracy) and watched.per_example and loss_kind not in _KINDS_OF_ROWS


def race_metric(
    name: str, metrics: Sequence[Metric], *, greater_is_better: bool, rows: int, by_token: bool = False
) -> RaceMetric | NotRaced:
    """Return what the race compares for the watched metric.

    Args:
        name: the watched metric without prefix, e.g. ``loss`` or ``accuracy``.
        metrics: the metric objects of the trainer.
        greater_is_better: direction of the watched metric.
        rows: number of rows in the evaluation set.
        by_token: the rows have shown that an accuracy counts their tokens.

    Example:
        >>> race_metric("loss", [], greater_is_better=False, rows=1000).name
        'loss'
        >>> race_metric("accuracy", [], greater_is_better=True, rows=1000).reason
        "the metric 'accuracy' comes from a function that says nothing of single rows; give load_metric(...) instead"
    """
    if name in ("loss", "perplexity"):
        return LossMetric(name="loss")
    for metric in metrics:
        if metric.primary == name:
            return _of_object(metric, greater_is_better, rows, by_token)
    sides = ", ".join(repr(metric.primary) for metric in metrics)
    if sides:
        return NotRaced(
            f"the metric {name!r} comes from a function or is a side value of a metric object; a race compares main "
            f"values ({sides})"
        )
    return NotRaced(
        f"the metric {name!r} comes from a function that says nothing of single rows; give load_metric(...) instead"
    )


def _of_object(metric: Metric, greater_is_better: bool, rows: int, by_token: bool) -> RaceMetric | NotRaced:
    name = metric.primary
    if isinstance(metric, RankMetric):
        return OpaqueMetric(name, lambda rows, payload: metric.from_payload(payload), greater_is_better)
    if not isinstance(metric, AdditiveMetric):
        return NotRaced(f"the metric {name!r} is neither a function of sums over rows nor one of their ranks")
    if metric.per_example and not by_token:
        bounds = (0.0, 1.0) if name in _SHARES else (float("-inf"), float("inf"))
        return ScoreMetric(name, greater_is_better, lower=bounds[0], upper=bounds[1])

    def of_means(means: Float64Array) -> float:  # metrics with smoothing need the sums
        return float(metric.primary_from_totals(_sums(means, rows)))

    return StatisticMetric(name, of_means, greater_is_better)


def _sums(means: Float64Array, rows: int) -> Float64Array:
    """Return sums of means; whole ones exactly, so that equal counts tie as they do in full evaluation."""
    sums = means * rows
    whole = np.rint(sums)
    return np.where(np.abs(sums - whole) <= _ROUNDING * np.abs(whole), whole, sums)
