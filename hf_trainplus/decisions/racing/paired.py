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
from hf_trainplus.decisions.racing.metrics import RaceMetric
from hf_trainplus.results import Float64Array, Int64Array

_PRIOR_FLOOR = 0.08
_PRIOR_ROWS = 3.0
_RIDGE = 1e-6
_ROWS_PER_COVARIATE = 10


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
    metric: RaceMetric,
    covariates: Float64Array | None = None,
    covariate_means: Float64Array | None = None,
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
        covariates: (N, p) columns known for every row, or None.
        covariate_means: (p,) their means over all rows.

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
    if covariates is not None and covariate_means is not None and depth > _ROWS_PER_COVARIATE * covariates.shape[1]:
        shift, residual = _adjust(residual, covariates[rows], covariate_means, weight, stratum, counts, design)
        value += shift
    variance = stratified_variance(residual, stratum, counts, design)
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

    Residuals carry the calibration weights (g-weights) and are enlarged by their leverage, so that an extrapolation
    to rows unlike those read shows as a large standard error instead of a confident wrong value.
    """
    centred_x = x - _stratum_means(x, stratum, counts)[stratum]
    centred = values - _stratum_means(values[:, None], stratum, counts)[stratum, 0]
    unread = 1.0 - counts / np.maximum(design.sizes, 1)
    per_row = ((design.sizes / design.size) ** 2 * unread / np.maximum(counts * (counts - 1.0), 1.0))[stratum]
    spread = np.sqrt(per_row @ centred_x**2)
    usable = spread > _RIDGE * max(float(spread.max(initial=0.0)), 1e-300)
    if not usable.any():
        return 0.0, values
    z = centred_x[:, usable] / spread[usable]
    gap = (x_means - weight @ x)[usable] / spread[usable]
    weighted = z * per_row[:, None]
    gram = weighted.T @ z + _RIDGE * np.eye(z.shape[1])
    inverse = np.linalg.inv(gram)
    influence = weighted @ inverse
    slope = influence.T @ centred
    leverage = np.minimum((influence * z).sum(axis=1), 0.9)
    calibration = 1.0 + influence @ gap / weight
    residual = calibration * (centred - z @ slope) / (1.0 - leverage)
    return float(gap @ slope), residual


def _stratum_means(x: Float64Array, stratum: Int64Array, counts: Int64Array) -> Float64Array:
    sums = np.column_stack([np.bincount(stratum, weights=column, minlength=len(counts)) for column in x.T])
    return np.asarray(sums / np.maximum(counts, 1)[:, None], dtype=np.float64)


def stratified_variance(
    values: Float64Array, stratum: npt.NDArray[np.int64], counts: Int64Array, design: Design
) -> float:
    """Variance of the stratified mean over the unread rows, each stratum's own variance shrunk to the design's shape.

    A stratum in which nothing differs among few rows read does not get variance 0: three rows' worth of the variance
    that the design expects there is mixed in.

    Args:
        values: (n,) values of the rows read.
        stratum: (n,) their strata.
        counts: (H,) rows read a stratum.
        design: gives sizes and the expected scale.
    """
    means = _stratum_means(values[:, None], stratum, counts)[:, 0]
    squares = np.bincount(stratum, weights=(values - means[stratum]) ** 2, minlength=len(counts))
    freedom = np.maximum(counts - 1.0, 0.0)
    prior = np.maximum(design.scale, _PRIOR_FLOOR) ** 2
    level = squares.sum() / max(float(freedom @ prior), 1e-300)
    single = len(counts) == 1
    extra = 0.0 if single else _PRIOR_ROWS
    within = (squares + extra * level * prior) / np.maximum(freedom + extra, 1.0)
    share = design.sizes / design.size
    unread = 1.0 - counts / np.maximum(design.sizes, 1)
    return float((share**2 * within / np.maximum(counts, 1) * unread).sum())
