"""Variance of a linearized estimate: every estimator reduces to the weighted mean of one influence value a row."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.results import Float64Array, Int64Array

_PRIOR_ROWS = 3  # racing measurements: shrinking to the design's shape with this weight keeps coverage at 93-98 %


@dataclass(frozen=True)
class Variance:
    """Variance of an estimate for the set and for the population behind it.

    Args:
        of_set: variance as an estimate of the full set's value; 0 when exact, NaN when it cannot be known (one row).
        of_population: variance as an estimate of the population's value; NaN when it cannot be known.
        set_degrees: degrees of freedom of ``of_set``, infinite when exact.
        population_degrees: degrees of freedom of ``of_population``.
    """

    of_set: float
    of_population: float
    set_degrees: float
    population_degrees: float


def linearized_variance(
    influence: Float64Array, design: SampleDesign, *, spread: Float64Array | None = None
) -> Variance:
    """Variance of ``sum(w * influence) / sum(w)``, with the finite-population correction in every stratum.

    It does not know of dependence between rows beyond the design's clusters.

    Args:
        influence: (n,) influence of each row on the estimate; for a mean, value minus mean.
        design: how the rows were drawn.
        spread: (n,) standard deviation expected in the row's stratum, > 0, known before the draw; a stratum's variance
            is then shrunk toward this shape, which keeps strata where nothing was seen to vary from counting as
            certain. None takes each stratum's own variance.

    Returns:
        The variances with their degrees of freedom.

    Source:
        Cochran, Sampling Techniques, 5.6 (stratified variance) and 5.4 (Satterthwaite's degrees of freedom); the
        population's variance adds S^2/N (Miller 2024, arXiv 2411.00640, for clusters).

    Example:
        >>> v = linearized_variance(np.array([-1.0, 1.0, -1.0, 1.0]), SampleDesign.simple(4, 8))
        >>> round(v.of_set, 4), round(v.of_population, 4)
        (0.1667, 0.3333)
    """
    if design.n < 2:
        return Variance(0.0 if design.exact else math.nan, math.nan, math.inf, math.nan)
    if design.clusters is not None and design.clusters_total is not None:
        return _whole_clusters(influence, design, design.clusters, design.clusters_total)
    of_set, degrees = (0.0, math.inf) if design.exact else _stratified(influence, design, spread)
    if design.clusters is None:
        spread_of_set = design.mean(influence**2) * design.n / (design.n - 1)
        known = degrees if math.isfinite(degrees) else float(design.n - 1)
        return Variance(of_set, of_set + spread_of_set / float(design.weights.sum()), degrees, known)
    clustered, groups = _clustered_population(influence, design, design.clusters)
    return Variance(of_set, of_set + clustered, degrees, min(degrees, max(groups - 1, 1)))


def _stratified(influence: Float64Array, design: SampleDesign, spread: Float64Array | None) -> tuple[float, float]:
    """Sum over strata of n_h s_h^2 (1 - f_h), where s_h^2 is the variance of a row's share of the estimate."""
    shares = design.weights * influence / design.weights.sum()
    counts = design.counts.astype(np.float64)
    means = np.bincount(design.codes, weights=shares, minlength=len(counts)) / counts
    squares = np.bincount(design.codes, weights=(shares - means[design.codes]) ** 2, minlength=len(counts))
    variances, degrees = _shrunk(
        squares, np.asarray(counts - 1, dtype=np.float64), _shape(design, spread), spread is not None
    )
    terms = counts * variances * np.clip(1 - counts / design.sizes, 0.0, 1.0)
    total = float(terms.sum())
    informed = degrees > 0
    spread_of_terms = float((terms[informed] ** 2 / degrees[informed]).sum())
    return total, total**2 / spread_of_terms if spread_of_terms > 0 else max(float(degrees.sum()), 1.0)


def _shape(design: SampleDesign, spread: Float64Array | None) -> Float64Array:
    """Prior shape of the strata's variances, on the scale of a row's share of the estimate."""
    row_weight = design.sizes / design.counts
    if spread is None:
        return row_weight**2
    deviation = np.bincount(design.codes, weights=spread, minlength=len(design.counts)) / design.counts
    floored = np.maximum(deviation / deviation.max(), 0.08) if deviation.max() > 0 else np.ones(len(deviation))
    return np.asarray((row_weight * floored) ** 2, dtype=np.float64)


def _shrunk(
    squares: Float64Array, degrees: Float64Array, shape: Float64Array, everywhere: bool
) -> tuple[Float64Array, Float64Array]:
    """Pull each stratum's variance toward the shape; without a prior only strata of one row borrow from the others."""
    known = float((degrees * shape).sum())
    scale = float(squares.sum()) / known if known > 0 else math.nan
    if everywhere and len(squares) > 1:
        return (squares + _PRIOR_ROWS * scale * shape) / (degrees + _PRIOR_ROWS), degrees + _PRIOR_ROWS
    own = np.divide(squares, degrees, out=scale * shape, where=degrees > 0)
    return own, degrees


def _clustered_population(influence: Float64Array, design: SampleDesign, clusters: Int64Array) -> tuple[float, int]:
    """Between-cluster variance of the full set's value, its sampling part taken out of the squared cluster totals."""
    totals = np.bincount(clusters, weights=design.weights * influence)
    groups = len(totals)
    if groups < 2:
        return math.nan, groups
    sampled = float((design.weights * (design.weights - 1)) @ influence**2)
    squared = (groups / (groups - 1) * float(totals @ totals) - sampled) / float(design.weights.sum()) ** 2
    return max(squared, 0.0), groups


def _whole_clusters(
    influence: Float64Array, design: SampleDesign, clusters: Int64Array, clusters_total: int
) -> Variance:
    """Variance when clusters, not rows, were drawn at random: the cluster's total is the sampling unit."""
    totals = np.bincount(clusters, weights=design.weights * influence) / design.weights.sum()
    groups = len(totals)
    if groups < 2:
        return Variance(0.0 if design.exact else math.nan, math.nan, math.inf, math.nan)
    of_population = groups / (groups - 1) * float(totals @ totals)
    of_set = of_population * (1 - groups / clusters_total)
    return Variance(of_set, of_population, groups - 1 if of_set else math.inf, groups - 1)
