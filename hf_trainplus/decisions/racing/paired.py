"""The paired difference of two checkpoints over a stratified prefix, with its standard error.

Formulas: stratified difference and regression estimators with finite-population correction (Cochran, Sampling
Techniques, chapters 5 to 7; Sarndal, Swensson and Wretman, Model Assisted Survey Sampling, chapter 6).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.design import Design
from hf_trainplus.decisions.racing.metrics import AdditiveMetric
from hf_trainplus.results import Float64Array, Int64Array

_PRIOR_FLOOR = 0.08
_PRIOR_ROWS = 3.0
_RIDGE = 1e-6
_ROWS_PER_COVARIATE = 10
_BETWEEN = 0.25


@dataclass(frozen=True)
class PairedDifference:
    """Difference of two checkpoints, oriented so that a positive value means that the first is worse.

    Args:
        value: estimated difference in units of the metric.
        se: its standard error over the unread rows; 0 when every row is read.
        rows: rows that both have read.
        discordant: rows of these on which they differ.
    """

    value: float
    se: float
    rows: int
    discordant: int

    @property
    def z(self) -> float:
        """Difference in standard errors; infinite for an exact difference, 0 for an exact tie."""
        if self.se > 0:
            return self.value / self.se
        return float(np.sign(self.value)) * float("inf") if self.value else 0.0


def paired_difference(
    first: Column,
    second: Column,
    design: Design,
    depth: int,
    metric: AdditiveMetric,
    known: tuple[Float64Array, Float64Array] | None = None,
    *,
    at: float = 0.0,
) -> PairedDifference:
    """Estimate how much worse ``first`` is than ``second`` from the first ``depth`` rows of the design.

    It takes no decision and assumes that both columns hold the prefix. Where one column is fully known its exact means
    anchor the other's, and covariates known for all rows take out the part of the difference that they explain.

    Args:
        first: column that holds the prefix.
        second: column that holds the prefix.
        design: the nested order.
        depth: rows of the prefix, 1..N.
        metric: what is compared.
        known: (N, p) covariates known for every row and their (p,) means over all rows, or None.
        at: difference that the estimate is to be told from, oriented like it; the standard error holds there.

    Returns:
        The difference; exact, with ``se`` 0, at ``depth == N``.
    """
    sign = -1.0 if metric.greater_is_better else 1.0
    rows = design.order[:depth]
    stratum = design.ordered_stratum[:depth]
    counts = design.counts(depth)
    a, b = first.values[rows], second.values[rows]
    discordant = int(np.count_nonzero((a != b).any(axis=1)))
    if depth == design.size:
        return PairedDifference(sign * (metric.value(first.means) - metric.value(second.means)), 0.0, depth, discordant)
    share = design.sizes / design.size
    weight = (share / np.maximum(counts, 1))[stratum]
    mean_a, mean_b = _means(first, second, a, b, weight)
    value = metric.value(mean_a) - metric.value(mean_b)
    residual = a @ metric.gradient(mean_a) - b @ metric.gradient(mean_b)
    if known is not None and depth > _ROWS_PER_COVARIATE * known[0].shape[1]:
        shift, residual = _adjust(residual, known[0][rows], known[1], weight, stratum, counts, design)
        value += shift
    variance = variance_under_tie(residual, value - sign * at, stratum, counts, design)
    return PairedDifference(sign * value, float(np.sqrt(variance)), depth, discordant)


def _means(
    first: Column, second: Column, a: Float64Array, b: Float64Array, weight: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Column means of both; a fully known one is exact and lends the other the rows that were not read."""
    if first.full and second.full:
        return first.means, second.means
    if second.full:
        return second.means + weight @ (a - b), second.means
    if first.full:
        return first.means, first.means - weight @ (a - b)
    return weight @ a, weight @ b


def _adjust(
    values: Float64Array,
    x: Float64Array,
    x_means: Float64Array,
    weight: Float64Array,
    stratum: Int64Array,
    counts: Int64Array,
    design: Design,
) -> tuple[float, Float64Array]:
    """Shift of the stratified mean by regression on ``x``, and the residuals whose spread is the shifted mean's.

    Slopes are fitted inside strata and, with less weight, between them: where the rows read of a stratum all look
    alike, what the other strata show is the only guide to those that were not read. Residuals carry the calibration
    weights (g-weights) and are enlarged by their leverage, so that an extrapolation to rows unlike those read shows as
    a large standard error instead of a confident wrong value.
    """
    unread = 1.0 - counts / np.maximum(design.sizes, 1)
    per_row = ((design.sizes / design.size) ** 2 * unread / np.maximum(counts * (counts - 1.0), 1.0))[stratum]
    inside_x, fitted_x = _inside_and_between(x, stratum, counts, per_row)
    inside, fitted = _inside_and_between(values[:, None], stratum, counts, per_row)
    spread = np.sqrt(per_row @ fitted_x**2)
    usable = spread > _RIDGE * max(float(spread.max(initial=0.0)), 1e-300)
    if not usable.any():
        return 0.0, values
    z = fitted_x[:, usable] / spread[usable]
    gap = (x_means - weight @ x)[usable] / spread[usable]
    weighted = z * per_row[:, None]
    inverse = np.linalg.inv(weighted.T @ z + _RIDGE * np.eye(z.shape[1]))
    influence = weighted @ inverse
    slope = influence.T @ fitted[:, 0]
    leverage = np.minimum((influence * z).sum(axis=1), 0.9)
    calibration = 1.0 + influence @ gap / weight
    residual = calibration * (inside[:, 0] - inside_x[:, usable] / spread[usable] @ slope) / (1.0 - leverage)
    return float(gap @ slope), residual


def _inside_and_between(
    x: Float64Array, stratum: Int64Array, counts: Int64Array, per_row: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Deviations from the stratum's mean, and the same plus the damped deviations of the means from each other."""
    means = _stratum_means(x, stratum, counts)[stratum]
    centre = per_row @ means / max(float(per_row.sum()), 1e-300)
    inside = x - means
    return inside, inside + np.sqrt(_BETWEEN) * (means - centre)


def _stratum_means(x: Float64Array, stratum: Int64Array, counts: Int64Array) -> Float64Array:
    sums = np.column_stack([np.bincount(stratum, weights=column, minlength=len(counts)) for column in x.T])
    return np.asarray(sums / np.maximum(counts, 1)[:, None], dtype=np.float64)


def variance_under_tie(
    values: Float64Array, value: float, stratum: Int64Array, counts: Int64Array, design: Design
) -> float:
    """Variance that the estimate would have at the value it is to be told from, such as a tie: its own, tilted there.

    Rare rows against the apparent winner that the sample missed make the estimate too sure and its variance too small
    together. To first order of exponential tilting the variance at a tie is ``V + |D| k3 / V``, with ``k3`` the third
    cumulant of the estimate towards zero. A favourable skewness is not used.

    Args:
        values: (n,) values of the rows read.
        value: how far the estimate is from that value, in the orientation of ``values``.
        stratum: (n,) their strata.
        counts: (H,) rows read a stratum.
        design: gives sizes and the expected scale.
    """
    within, centred = _within(values, stratum, counts, design)
    share = design.sizes / design.size
    unread = 1.0 - counts / np.maximum(design.sizes, 1)
    each = share / np.maximum(counts, 1)
    parts = share * each * within * unread
    variance = float(parts.sum())
    if variance <= 0:
        return 0.0
    weight = (each**3 * unread)[stratum]
    squares = float(weight @ centred**2)
    size = -np.sign(value) * float(weight @ centred**3) / squares if squares > 0 else float(np.abs(centred).max())
    return variance + abs(value) * max(size, 0.0) * float(parts @ each) / variance


def stratified_variance(
    values: Float64Array, stratum: npt.NDArray[np.int64], counts: Int64Array, design: Design
) -> float:
    """Variance of the stratified mean over the unread rows.

    Args:
        values: (n,) values of the rows read.
        stratum: (n,) their strata.
        counts: (H,) rows read a stratum.
        design: gives sizes and the expected scale.
    """
    within, _ = _within(values, stratum, counts, design)
    share = design.sizes / design.size
    unread = 1.0 - counts / np.maximum(design.sizes, 1)
    return float((share**2 * within / np.maximum(counts, 1) * unread).sum())


def _within(
    values: Float64Array, stratum: Int64Array, counts: Int64Array, design: Design
) -> tuple[Float64Array, Float64Array]:
    """Variance inside each stratum, shrunk to the shape that the design expects, and the centred values.

    A stratum in which nothing differs among few rows read does not get variance 0: three rows' worth of the variance
    expected there is mixed in.
    """
    centred = values - _stratum_means(values[:, None], stratum, counts)[stratum, 0]
    squares = np.bincount(stratum, weights=centred**2, minlength=len(counts))
    freedom = np.maximum(counts - 1.0, 0.0)
    prior = np.maximum(design.scale, _PRIOR_FLOOR) ** 2
    level = squares.sum() / max(float(freedom @ prior), 1e-300)
    extra = 0.0 if len(counts) == 1 else _PRIOR_ROWS
    return (squares + extra * level * prior) / np.maximum(freedom + extra, 1.0), centred
