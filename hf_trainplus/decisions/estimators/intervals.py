"""Intervals for means, ratios and token-weighted losses, for exact sets and samples alike."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.estimators.assembly import linearized_estimate, resolve_design, without_interval
from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.proportions import SHARE_PULL, share_estimate
from hf_trainplus.decisions.estimators.sampling_error import SamplingError
from hf_trainplus.decisions.estimators.uncertainty import Estimate
from hf_trainplus.decisions.estimators.variance import Variance, linearized_variance
from hf_trainplus.results import Float64Array


def mean_interval(
    values: npt.ArrayLike,
    *,
    n_total: int | None = None,
    design: SampleDesign | None = None,
    confidence: float = 0.95,
    spread: npt.ArrayLike | None = None,
) -> Estimate:
    """Mean of a per-example score with its interval: Wilson for 0/1 scores, Student's t otherwise.

    It does not repair bad rows: one NaN or infinite value shows in the result, without an interval.

    Args:
        values: (n,) score of each row.
        n_total: rows in the full set when the n rows were drawn at random from it; None when they are the set.
        design: weights, strata and clusters of the rows, in place of n_total.
        confidence: level in (0, 1).
        spread: (n,) standard deviation expected in each row's stratum before the draw, see ``linearized_variance``.

    Returns:
        The estimate of the full set's mean.

    Raises:
        ValueError: both n_total and design, columns of unequal length, or a confidence outside (0, 1).

    Source:
        Cochran, Sampling Techniques, 2.8 and 5.4; Wilson 1927, for weighted samples with the effective number of rows
        (Dean and Pagano 2015); Hall 1992 for the skewness of scores of one sign.

    Example:
        >>> sample = mean_interval([0.2, 0.4, 0.9, 0.5], n_total=100)
        >>> sample.value, sample.exact, sample.n_total
        (0.5, False, 100)
    """
    column = np.asarray(values, dtype=np.float64)
    used = resolve_design(len(column), n_total, design)
    if not used.n:
        return without_interval(None, used, confidence, "empty")
    value = used.mean(column)
    if not math.isfinite(value):
        return without_interval(value, used, confidence, "non-finite")
    expected = None if spread is None else np.asarray(spread, dtype=np.float64)
    right_or_wrong = bool(np.isin(column, (0, 1)).all())
    pull = SHARE_PULL if right_or_wrong else 0.0
    variance = linearized_variance(column - value, used, spread=expected, pull=pull)
    if right_or_wrong:
        return share_estimate(column, used, variance, confidence)
    return linearized_estimate(value, _skewness_of(column, variance), used, confidence, method="t")


def loss_interval(
    loss_sum: npt.ArrayLike,
    target_count: npt.ArrayLike,
    *,
    n_total: int | None = None,
    design: SampleDesign | None = None,
    confidence: float = 0.95,
    spread: npt.ArrayLike | None = None,
) -> Estimate:
    """Token-weighted loss, all losses divided once by all targets, with the interval of a ratio estimator.

    It does not treat tokens as independent: the row is the unit that was drawn.

    Args:
        loss_sum: (n,) sum of the row's losses, in nats for a cross entropy.
        target_count: (n,) targets of the row, >= 0; a row with none counts as a row and adds no loss.
        n_total: rows in the full set when the n rows were drawn at random from it; None when they are the set.
        design: weights, strata and clusters of the rows, in place of n_total.
        confidence: level in (0, 1).
        spread: (n,) standard deviation expected in each row's stratum before the draw, see ``linearized_variance``.

    Returns:
        The estimate; its value is None without any target.

    Raises:
        ValueError: both n_total and design, columns of unequal length, or a confidence outside (0, 1).

    Source:
        Ratio estimator R = sum(w y) / sum(w c) with influence (y - R c) / mean(c); see ``ratio_interval``.

    Example:
        >>> loss_interval([3.0, 1.0], [3, 1]).value
        1.0
    """
    counts = np.asarray(target_count, dtype=np.float64)
    sums = np.where(counts > 0, np.asarray(loss_sum, dtype=np.float64), 0.0)
    used = resolve_design(len(counts), n_total, design)
    return ratio_interval(sums, counts, design=used, confidence=confidence, spread=spread)


def ratio_interval(
    numerator: npt.ArrayLike,
    denominator: npt.ArrayLike,
    *,
    n_total: int | None = None,
    design: SampleDesign | None = None,
    confidence: float = 0.95,
    spread: npt.ArrayLike | None = None,
) -> Estimate:
    """Ratio of two totals over the full set, e.g. losses per token or errors per reference word, with its interval.

    Args:
        numerator: (n,) the row's part of the upper total.
        denominator: (n,) the row's part of the lower total, >= 0.
        n_total: rows in the full set when the n rows were drawn at random from it; None when they are the set.
        design: weights, strata and clusters of the rows, in place of n_total.
        confidence: level in (0, 1).
        spread: (n,) standard deviation expected in each row's stratum before the draw, see ``linearized_variance``.

    Returns:
        The estimate; its value is None when the lower total is 0.

    Raises:
        ValueError: both n_total and design, columns of unequal length, or a confidence outside (0, 1).

    Source:
        Cochran, Sampling Techniques, chapter 6; without clusters the influence is the jackknife's, each divided by
        the share of the lower total that the other rows have.

    Example:
        >>> ratio_interval([1.0, 2.0, 0.0], [4, 5, 3]).value
        0.25
    """
    above, below = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    used = resolve_design(len(above), n_total, design)
    if above.shape != below.shape:
        raise ValueError(f"numerator {above.shape} and denominator {below.shape}: give one value a row in each.")
    total = float(used.weights @ below)
    if total == 0:
        return without_interval(None, used, confidence, "empty")
    value = float(used.weights @ above) / total
    if not math.isfinite(value):
        return without_interval(value, used, confidence, "non-finite")
    influence = (above - value * below) / used.mean(below)
    if used.clusters is None:
        # a row with a large part of the lower total pulls the ratio toward itself, and hides its own error
        without = 1 - used.weights * below / total
        influence = np.divide(influence, without, out=np.zeros_like(influence), where=without > 0)
    if np.count_nonzero(below) < 2:
        # the only row of the lower total fits its own ratio: nothing is known of its error
        unknown = Variance(SamplingError.none() if used.exact else SamplingError.unknown(), SamplingError.unknown())
        return linearized_estimate(value, unknown, used, confidence, method="ratio")
    expected = None if spread is None else np.asarray(spread, dtype=np.float64)
    variance = _skewness_of(above, linearized_variance(influence, used, spread=expected))
    return linearized_estimate(value, variance, used, confidence, method="ratio")


def _skewness_of(values: Float64Array, variance: Variance) -> Variance:
    """Keep the skewness of values of one sign, such as losses; that of differences is noise."""
    return variance if bool((values >= 0).all() or (values <= 0).all()) else variance.symmetric()
