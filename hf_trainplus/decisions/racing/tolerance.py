"""How much regret a race may take on, and how much it has."""

from __future__ import annotations

from math import lgamma, log, log1p

import numpy as np

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.design import Design
from hf_trainplus.decisions.racing.metrics import AdditiveMetric, ScoreMetric
from hf_trainplus.decisions.racing.opaque import OpaqueMetric
from hf_trainplus.decisions.racing.state import RaceState
from hf_trainplus.decisions.racing.sums import combine

_ALPHA = 0.0005  # one-sided chance of more unseen adverse rows than the bound says, as in racing by 3.5 errors


def full_set_se(state: RaceState, metric: AdditiveMetric | OpaqueMetric) -> float:
    """Standard error of the full set's metric: the least that any fully known checkpoint shows; 0 without one.

    Without a fully known checkpoint no regret is allowed yet, so that the unit of the tolerance is never a guess.
    """
    if isinstance(metric, OpaqueMetric) or not state.references:
        return 0.0
    columns = [state.columns[key] for key in state.references]
    spreads = [float(metric_rows(column, metric).std()) for column in columns]
    return min(spreads) / float(np.sqrt(state.size))


def metric_rows(column: Column, metric: AdditiveMetric) -> np.ndarray:
    """(N,) linearised contribution of each row of a fully known checkpoint."""
    return combine(column.values, metric.gradient(column.means))


def unseen_regret(
    kept: Column, dropped: Column, design: Design, depth: int, metric: AdditiveMetric | OpaqueMetric
) -> float:
    """Upper bound of how much better ``dropped`` can be when hardly any row differs; infinite where none is known.

    With k rows seen in its favour where rows are read at rate f, no more are there than ``unseen_limit(k, f)``, but
    for one chance in 2,000; each is worth the score's range. Needs a score bounded on both sides.

    Args:
        kept: column of the one that stays.
        dropped: column of the one to go.
        design: the nested order.
        depth: rows that both have read.
        metric: what is compared.
    """
    if not (isinstance(metric, ScoreMetric) and np.isfinite(metric.lower) and np.isfinite(metric.upper)):
        return float("inf")
    worst = metric.lower if metric.greater_is_better else metric.upper
    rows, stratum, counts = design.order[:depth], design.ordered_stratum[:depth], design.counts(depth)
    mine, other = kept.values[rows, 0], dropped.values[rows, 0]
    gains = np.abs(mine - other) * (np.sign(other - mine) == (1.0 if metric.greater_is_better else -1.0))
    possible = np.bincount(stratum, weights=mine == worst, minlength=len(counts)) > 0
    if kept.full:
        possible = np.bincount(design.stratum, weights=kept.values[:, 0] == worst, minlength=len(counts)) > 0
    rate = counts / np.maximum(design.sizes, 1)
    thin = possible & (rate < 1)
    losses = float((np.abs(mine - other) * (gains == 0)).sum())
    if not thin.any():
        return (float(gains.sum()) - losses) / design.size
    slowest = float(rate[thin].min())
    seen = int(np.count_nonzero(gains[thin[stratum]]))
    unseen = (unseen_limit(seen, slowest) - seen) * (metric.upper - metric.lower)
    return (float(gains.sum()) + unseen - losses) / design.size


def unseen_limit(seen: int, rate: float) -> float:
    """Number of rows of a kind of which seeing ``seen`` or fewer, at this rate of reading, has a chance of 1 in 2,000.

    The binomial chance is an upper bound of the one without replacement.

    Example:
        >>> unseen_limit(0, 0.22), unseen_limit(0, 0.61)
        (31, 9)
    """
    if rate <= 0:
        return float("inf")
    low, high = seen, seen + 1
    while _chance(seen, high, rate) > _ALPHA:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _chance(seen, middle, rate) > _ALPHA else (low, middle)
    return high


def _chance(seen: int, number: int, rate: float) -> float:
    """Binomial chance of seeing at most ``seen`` of ``number`` rows."""
    if number <= seen or rate >= 1:
        return 1.0 if number <= seen else 0.0
    terms = [
        lgamma(number + 1) - lgamma(k + 1) - lgamma(number - k + 1) + k * log(rate) + (number - k) * log1p(-rate)
        for k in range(seen + 1)
    ]
    return float(np.exp(terms).sum())


def cheaper_tolerance(state: RaceState, metric: AdditiveMetric | OpaqueMetric, share: float = 0.22) -> float | None:
    """Tolerance at which a tie would be settled after ``share`` of the rows; None without a known standard error.

    From ``1 - alpha ** (1 / K) = share`` with K rows of tolerated lead and alpha one in 2,000.
    """
    error = full_set_se(state, metric)
    if error == 0 or not isinstance(metric, ScoreMetric):
        return None
    rows = np.log(_ALPHA) / np.log(1 - share)
    return float(rows / (error * state.size))
