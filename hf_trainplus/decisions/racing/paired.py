"""The paired difference of two checkpoints over a stratified prefix, with its standard error.

The estimate is a stratified difference or regression estimate (Cochran, Sampling Techniques, chapters 5 to 7).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.metrics import AdditiveMetric, StatisticMetric, unit_of
from hf_trainplus.decisions.racing.regression import Regression
from hf_trainplus.decisions.racing.sample import Sample
from hf_trainplus.decisions.racing.sums import combine, total, totals
from hf_trainplus.results import Float64Array

ROWS_PER_COVARIATE = 10
_UNSEEN_ROWS = 8.0  # a kind of row that none of n shows is more than 8/n of all rows with chance e^-8


@dataclass(frozen=True)
class PairedDifference:
    """Difference of two checkpoints, oriented so that a positive value means that the first is worse.

    Args:
        value: estimated difference in units of the metric.
        se: its standard error over the unread rows; 0 when every row is read.
        rows: rows that both have read.
        discordant: rows of these on which they differ.
        freedom: degrees of freedom of the standard error; few differing rows make it uncertain.
    """

    value: float
    se: float
    rows: int
    discordant: int
    freedom: float = np.inf

    @property
    def z(self) -> float:
        """Difference in standard errors, as the normal deviate of the same tail; infinite when exact, 0 for a tie.

        Wallace's approximation of Student's t by the normal (Annals of Mathematical Statistics 30, 1959).
        """
        if self.se <= 0:
            return float(np.sign(self.value)) * float("inf") if self.value else 0.0
        t, freedom = self.value / self.se, self.freedom
        if not np.isfinite(freedom):
            return t
        shrunk = np.sqrt(freedom * np.log1p(t * t / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
        return float(np.sign(t) * shrunk)

    def margin(self, bound: float) -> float:
        """Half-width that belongs to a normal deviate of ``bound``, wider where few rows speak."""
        return critical_value(bound, self.freedom) * self.se if self.se > 0 else 0.0


def critical_value(bound: float, freedom: float) -> float:
    """Student's t of the same tail as the normal deviate ``bound``, the inverse of ``PairedDifference.z``.

    Example:
        >>> round(critical_value(3.5, 12.0), 2), critical_value(3.5, np.inf)
        (4.77, 3.5)
    """
    if not np.isfinite(freedom):
        return bound
    return float(critical_values(np.array([bound]), np.array([freedom]))[0])


def critical_values(bounds: Float64Array, freedom: Float64Array) -> Float64Array:
    """(n,) ``critical_value`` of (n,) bounds and finite degrees of freedom."""
    scaled = bounds * (8 * freedom + 3) / (8 * freedom + 1)
    return np.asarray(np.sqrt(freedom * np.expm1(np.minimum(scaled**2 / freedom, 50.0))), dtype=np.float64)


def paired_difference(
    first: Column,
    second: Column,
    sample: Sample,
    metric: AdditiveMetric,
    regression: Regression | None = None,
    *,
    at: float = 0.0,
) -> PairedDifference:
    """Estimate how much worse ``first`` is than ``second`` from the rows of a sample.

    It takes no decision and assumes that both columns hold these rows. Where one column is fully known its exact means
    anchor the other's, and covariates known for all rows take out the part of the difference that they explain.

    Args:
        first: column that holds the sample.
        second: column that holds the sample.
        sample: rows that both have read.
        metric: what is compared.
        regression: of the same sample, or None; used where at least ten rows a covariate differ.
        at: difference that the estimate is to be told from, oriented like it; the standard error holds there.

    Returns:
        The difference; exact, with ``se`` 0, when the sample is all rows.
    """
    sign = -1.0 if metric.greater_is_better else 1.0
    a, b = first.values.take(sample.rows, axis=0), second.values.take(sample.rows, axis=0)
    discordant = int(np.count_nonzero(a != b if a.shape[1] == 1 else (a != b).any(axis=1)))
    if sample.depth == sample.design.size:
        exact = metric.value(first.means) - metric.value(second.means)
        return PairedDifference(sign * exact, 0.0, sample.depth, discordant)
    mean_a, mean_b = _means(first, second, a, b, sample.weight, metric)
    value = metric.value(mean_a) - metric.value(mean_b)
    slope_a, bend_a = _slope(metric, mean_a, mean_b, sample.depth)
    slope_b, bend_b = _slope(metric, mean_b, mean_a, sample.depth)
    residual = combine(a, slope_a) - combine(b, slope_b)
    fitted = 0
    # a shift along the slope of statistics is as wrong as the slope, and no standard error says so
    regression = None if isinstance(metric, StatisticMetric) else regression
    if regression is not None and discordant > ROWS_PER_COVARIATE * regression.width:
        fitted = regression.width
        shift, residual = regression.adjust(residual)
        value += shift
    variance, freedom = sample.variance_at(residual, value - sign * at, unit_of(metric))
    freedom = max(freedom - fitted, 1.0)
    se = float(np.hypot(np.sqrt(variance), max(bend_a, bend_b)))
    return PairedDifference(sign * value, se, sample.depth, discordant, freedom)


def _slope(metric: AdditiveMetric, means: Float64Array, other: Float64Array, rows: int) -> tuple[Float64Array, float]:
    """Return the metric's slope at a checkpoint, and how far the metric is from it.

    A precision without any positive prediction looks flat and becomes 1 with the first right one; a correlation without
    any is infinitely steep. So the slope of statistics is taken where as many rows as the sample can have missed are
    like the other checkpoint's, and what it does not explain of the way there counts as error.
    """
    if not isinstance(metric, StatisticMetric):
        return metric.gradient(means), 0.0
    step = min(1.0, _UNSEEN_ROWS / rows) * (other - means)
    slope = metric.gradient(means + step)
    change = metric.value(means + step) - metric.value(means)
    return slope, abs(change - total(slope, step))


def _means(
    first: Column, second: Column, a: Float64Array, b: Float64Array, weight: Float64Array, metric: AdditiveMetric
) -> tuple[Float64Array, Float64Array]:
    """Column means of both; a fully known one is exact and lends the other the rows that were not read.

    Statistics lend nothing: counts that are partly one checkpoint's and partly the other's can be negative.
    """
    if first.full and second.full:
        return first.means, second.means
    if not isinstance(metric, StatisticMetric):
        if second.full:
            return second.means + totals(weight, a - b), second.means
        if first.full:
            return first.means, first.means - totals(weight, a - b)
    return totals(weight, a), totals(weight, b)
