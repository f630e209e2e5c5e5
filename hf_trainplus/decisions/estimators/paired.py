"""Differences between two checkpoints on the same rows, and levels anchored to a full evaluation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.estimators.assembly import linearized_estimate, resolve_design, without_interval
from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.intervals import ratio_interval
from hf_trainplus.decisions.estimators.signs import SIGN_PULL, sign_estimate
from hf_trainplus.decisions.estimators.uncertainty import Estimate
from hf_trainplus.decisions.estimators.variance import linearized_variance


def difference_interval(
    current: npt.ArrayLike,
    reference: npt.ArrayLike,
    *,
    n_total: int | None = None,
    design: SampleDesign | None = None,
    confidence: float = 0.95,
    spread: npt.ArrayLike | None = None,
) -> Estimate:
    """Mean of ``current - reference`` on the same rows.

    Pairing removes what the rows have in common: for the loss of two checkpoints of a recorded AG News run, three
    evaluations apart, it is worth nine times the rows. It does not say which of two is better: a decision that is
    looked at more than once needs a wider bound (see the race).

    Args:
        current: (n,) score of each row.
        reference: (n,) score of the same rows under the other checkpoint.
        n_total: rows in the full set when the n rows were drawn at random from it; None when they are the set.
        design: weights, strata and clusters of the rows, in place of n_total.
        confidence: level in (0, 1).
        spread: (n,) standard deviation expected of the difference in each row's stratum, see ``linearized_variance``.

    Returns:
        The estimate; Tango's interval for 0/1 scores, Student's t otherwise.

    Raises:
        ValueError: columns of unequal length, or both n_total and design.

    Source:
        D = sum W_h dbar_h with Var D = sum W_h^2 v_h / n_h (1 - n_h / N_h); Cochran, Sampling Techniques, 5.

    Example:
        >>> difference_interval([1.0, 0.0, 1.0], [0.0, 0.0, 1.0]).value
        0.3333333333333333
    """
    left, right = np.asarray(current, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if left.shape != right.shape:
        raise ValueError(f"current {left.shape} and reference {right.shape}: give the scores of the same rows.")
    used, change = resolve_design(len(left), n_total, design), left - right
    value = used.mean(change) if used.n else math.nan
    if not math.isfinite(value):
        return without_interval(value if used.n else None, used, confidence, "non-finite" if used.n else "empty")
    counted = bool((np.isin(left, (0, 1)) & np.isin(right, (0, 1))).all())
    expected = None if spread is None else np.asarray(spread, dtype=np.float64)
    variance = linearized_variance(change - value, used, spread=expected, pull=SIGN_PULL if counted else 0.0)
    if counted:
        return sign_estimate(change, used, variance, confidence)
    return linearized_estimate(value, variance.symmetric(), used, confidence, method="paired t")


def loss_difference_interval(
    current_loss_sum: npt.ArrayLike,
    reference_loss_sum: npt.ArrayLike,
    target_count: npt.ArrayLike,
    *,
    n_total: int | None = None,
    design: SampleDesign | None = None,
    confidence: float = 0.95,
    spread: npt.ArrayLike | None = None,
) -> Estimate:
    """Difference of two token-weighted losses on the same rows, in nats per target.

    Args:
        current_loss_sum: (n,) sum of the row's losses.
        reference_loss_sum: (n,) the same under the other checkpoint.
        target_count: (n,) targets of the row, alike for both.
        n_total: rows in the full set when the n rows were drawn at random from it; None when they are the set.
        design: weights, strata and clusters of the rows, in place of n_total.
        confidence: level in (0, 1).
        spread: (n,) standard deviation expected of the difference in each row's stratum, see ``linearized_variance``.

    Returns:
        The estimate; a difference of perplexities has the same sign.

    Raises:
        ValueError: columns of unequal length, or both n_total and design.

    Example:
        >>> loss_difference_interval([3.0, 1.0], [2.0, 1.0], [1, 1]).value
        0.5
    """
    counts = np.asarray(target_count, dtype=np.float64)
    left, right = np.asarray(current_loss_sum, dtype=np.float64), np.asarray(reference_loss_sum, dtype=np.float64)
    if not left.shape == right.shape == counts.shape:
        raise ValueError(f"columns {left.shape}, {right.shape}, {counts.shape}: give one value a row in each.")
    change = np.where(counts > 0, left - right, 0.0)
    return ratio_interval(change, counts, n_total=n_total, design=design, confidence=confidence, spread=spread)


def anchored_estimate(difference: Estimate, reference: Estimate) -> Estimate:
    """Level of a checkpoint from the exact level of a reference and the paired difference to it.

    Args:
        difference: paired difference of the checkpoint to the reference, on a sample.
        reference: the reference's level on the full set; exact.

    Returns:
        The level: the difference estimator, with the difference's error for the set, and the reference's own for the
        population beside it.

    Raises:
        ValueError: a reference that is not exact, or other sets or confidences.

    Source:
        Difference estimator, M(t) = M(ref) + D; Saerndal, Swensson and Wretman, Model Assisted Survey Sampling, 6.3.

    Example:
        >>> from hf_trainplus.decisions.estimate import mean_interval
        >>> reference = mean_interval([0.5, 1.5, 1.0, 3.0])
        >>> change = difference_interval([0.25, 1.0], [0.5, 1.5], n_total=4)
        >>> level = anchored_estimate(change, reference)
        >>> level.value, level.exact, level.n
        (1.125, False, 2)
    """
    if not reference.exact:
        raise ValueError(
            f"the reference used {reference.n} of {reference.n_total} examples; evaluate it on all of them."
        )
    if (difference.n_total, difference.confidence) != (reference.n_total, reference.confidence):
        raise ValueError(
            f"difference and reference disagree: n_total {difference.n_total} and {reference.n_total}, confidence "
            f"{difference.confidence} and {reference.confidence}; estimate both on one set at one confidence."
        )
    level = reference.value
    own, error = reference.population_standard_error, difference.standard_error
    both = None if own is None or error is None else math.hypot(own, error)
    shifted = replace(
        difference,
        value=_sum(difference.value, level),
        ci_low=_sum(difference.ci_low, level),
        ci_high=_sum(difference.ci_high, level),
        population_standard_error=both,
        method=f"reference + {difference.method}",
    )
    return _with_population(shifted, difference, reference)


def _with_population(level: Estimate, difference: Estimate, reference: Estimate) -> Estimate:
    """Interval for the population: the two errors add up in squares, on each side."""
    first, second = _reach(difference), _reach(reference)
    if level.value is None or first is None or second is None:
        return replace(level, population_ci_low=None, population_ci_high=None)
    return replace(
        level,
        population_ci_low=level.value - math.hypot(first[0], second[0]),
        population_ci_high=level.value + math.hypot(first[1], second[1]),
    )


def _reach(estimate: Estimate) -> tuple[float, float] | None:
    """How far the interval reaches below and above the value."""
    if estimate.value is None or estimate.ci_low is None or estimate.ci_high is None:
        return None
    return estimate.value - estimate.ci_low, estimate.ci_high - estimate.value


def _sum(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left + right
