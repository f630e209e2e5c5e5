"""Error of a stratified sample: each stratum's variance with its finite-population correction."""

from __future__ import annotations

import math

import numpy as np

from hf_trainplus.decisions.estimators.balanced import balanced_error
from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.sampling_error import SamplingError
from hf_trainplus.results import Float64Array

# A stratum's variance is pulled toward the expected shape as if by this many further rows. The pooled variance would be
# the wrong shape to pull toward: it makes the intervals of Neyman samples wastefully wide.
_PRIOR_ROWS = 3
_ROUNDING = 1e-24  # of the sum of squares: rows that are alike differ by rounding, which is no variance
_LEAST_SHAPE = 0.08  # of the largest expected deviation: nothing is expected not to vary at all


def stratified_error(
    influence: Float64Array, design: SampleDesign, *, spread: Float64Array | None = None, pull: float = 0.0
) -> SamplingError:
    """Error of the weighted mean of the influence values over the strata of a sample.

    Args:
        influence: (n,) influence of each row on the estimate.
        design: how the rows were drawn.
        spread: (n,) standard deviation expected in the row's stratum before the draw, or None.
        pull: rows as if by which each stratum's variance is pulled toward the overall one.

    Returns:
        The error; a stratum of one row borrows its variance from the others, and alone leaves the error unknown.

    Source:
        Var = sum W_h^2 v_h / n_h (1 - n_h / N_h) with Satterthwaite's degrees of freedom (Cochran, Sampling
        Techniques, 5.4 and 5.6); with ``spread``, v_h = (df_h s_h^2 + 3 k p_h) / (df_h + 3), where p_h is the squared
        relative deviation expected and k = sum df_h s_h^2 / sum df_h p_h.
    """
    counts, shares_of_set = design.counts.astype(np.float64), design.sizes / design.sizes.sum()
    # unequal weights within a stratum (pooled rare classes) enter by the row's own part of the stratum's total
    values = influence * design.weights * (counts / design.sizes)[design.codes]
    residuals = values - (np.bincount(design.codes, weights=values) / counts)[design.codes]
    if design.balance is not None and len(counts) == 1:
        return balanced_error(residuals, design.balance, float(design.unseen[0]))
    squares = np.bincount(design.codes, weights=residuals**2).astype(np.float64)
    squares[squares < _ROUNDING * np.bincount(design.codes, weights=values**2)] = 0.0
    variances, degrees = _stratum_variances(squares, counts - 1, _expected_shape(design, spread))
    if pull and spread is None and len(counts) > 1:
        variances = (degrees * variances + pull * design.mean(influence**2)) / (degrees + pull)
    unseen = design.unseen
    terms = shares_of_set**2 * variances / counts * unseen
    thirds = shares_of_set**3 * _third_moments(residuals, design, counts) / counts**2
    return _combine(terms, degrees, thirds * unseen * (2 * unseen - 1), thirds * unseen**2)


def _combine(terms: Float64Array, degrees: Float64Array, third: Float64Array, coupled: Float64Array) -> SamplingError:
    variance = float(terms.sum())
    if not math.isfinite(variance):
        return SamplingError.unknown()
    if variance == 0:
        return SamplingError(0.0, max(float(degrees.sum()), 1.0))
    informed = degrees > 0
    effective = variance**2 / float((terms[informed] ** 2 / degrees[informed]).sum())
    return SamplingError(variance, effective, float(third.sum()) / variance**1.5, float(coupled.sum()) / variance**1.5)


def _third_moments(residuals: Float64Array, design: SampleDesign, counts: Float64Array) -> Float64Array:
    """Unbiased third central moment of each stratum; 0 under three rows, where it cannot be seen."""
    cubes = np.bincount(design.codes, weights=residuals * residuals * residuals)
    return np.divide(cubes * counts, (counts - 1) * (counts - 2), out=np.zeros_like(counts), where=counts > 2)


def _expected_shape(design: SampleDesign, spread: Float64Array | None) -> Float64Array | None:
    """Squared deviation expected in each stratum, relative to the largest."""
    if spread is None or len(design.counts) == 1:
        return None
    deviation = np.bincount(design.codes, weights=spread) / design.counts
    largest = float(deviation.max())
    relative = deviation / largest if largest > 0 else np.ones(len(deviation))
    return np.asarray(np.maximum(relative, _LEAST_SHAPE) ** 2, dtype=np.float64)


def _stratum_variances(
    squares: Float64Array, degrees: Float64Array, shape: Float64Array | None
) -> tuple[Float64Array, Float64Array]:
    """Variance of each stratum with its degrees of freedom."""
    prior = np.ones_like(squares) if shape is None else shape
    known = float(degrees @ prior)
    scale = float(squares.sum()) / known if known > 0 else math.nan
    if shape is not None:
        return (squares + _PRIOR_ROWS * scale * prior) / (degrees + _PRIOR_ROWS), degrees + _PRIOR_ROWS
    return np.divide(squares, degrees, out=scale * prior, where=degrees > 0), degrees
