"""Area under the ROC curve with its interval, by linearization (placement values)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.estimators.assembly import (
    Bounds,
    linearized_estimate,
    resolve_design,
    without_interval,
)
from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.proportions import wilson_bounds
from hf_trainplus.decisions.estimators.quantiles import critical_value
from hf_trainplus.decisions.estimators.sampling_error import SamplingError
from hf_trainplus.decisions.estimators.transforms import SCALES
from hf_trainplus.decisions.estimators.uncertainty import Estimate
from hf_trainplus.decisions.estimators.variance import linearized_variance
from hf_trainplus.results import Float64Array


def auc_interval(
    scores: npt.ArrayLike,
    references: npt.ArrayLike,
    *,
    n_total: int | None = None,
    design: SampleDesign | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Area under the ROC curve with its interval; ties count half.

    It does not average over several classes.

    Args:
        scores: (n,) higher for the positive class.
        references: (n,) True or 1 for positive rows, False or 0 for negative ones.
        n_total: rows in the full set when the n rows were drawn at random from it; None when they are the set.
        design: weights, strata and clusters of the rows, in place of n_total.
        confidence: level in (0, 1).

    Returns:
        The estimate, with bounds symmetric on the logit scale; its value is None without rows of both classes. Where
        the classes are parted cleanly, the bounds are Wilson's at the number of rows of the rarer class.

    Raises:
        ValueError: columns of unequal length, or references that are not zeros and ones.

    Source:
        DeLong, DeLong and Clarke-Pearson 1988, with weighted mid-ranks for unequal weights.

    Example:
        >>> auc_interval([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]).value
        0.75
    """
    column, truth = np.asarray(scores, dtype=np.float64), np.asarray(references)
    if column.shape != truth.shape or not bool(np.isin(truth, (0, 1)).all()):
        raise ValueError(f"scores {column.shape}, references {truth.shape}: give one score and one 0 or 1 a row.")
    used = resolve_design(len(column), n_total, design)
    positive = truth.astype(bool)
    if not positive.any() or positive.all():
        return without_interval(None, used, confidence, "one class")
    if not bool(np.isfinite(column).all()):
        return without_interval(math.nan, used, confidence, "non-finite")
    placement = np.empty(len(column))
    placement[positive] = _share_below(column[positive], column[~positive], used.weights[~positive])
    placement[~positive] = 1 - _share_below(column[~positive], column[positive], used.weights[positive])
    totals = np.where(positive, used.weights[positive].sum(), used.weights[~positive].sum())
    value = float((used.weights * placement)[positive].sum() / used.weights[positive].sum())
    influence = (placement - value) * float(used.weights.sum()) / totals
    rarer = min(int(positive.sum()), int((~positive).sum())) * used.effective_n / used.n

    def bounds(error: SamplingError, for_set: bool) -> Bounds:
        found = SCALES["logit"].bounds(value, error, confidence)
        if found is not None or not error.known:
            return found
        unseen = float(used.unseen.max()) if for_set else 1.0
        return wilson_bounds(value, rarer / unseen, critical_value(confidence)) if unseen else (value, value)

    variance = linearized_variance(influence, used)
    return linearized_estimate(value, variance, used, confidence, method="AUC, logit", bounds=bounds)


def _share_below(values: Float64Array, others: Float64Array, weights: Float64Array) -> Float64Array:
    """Weighted share of the others that lie below each value, equal ones by half."""
    order = np.argsort(others, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(weights[order])])
    below = sums[np.searchsorted(others[order], values, side="left")]
    up_to = sums[np.searchsorted(others[order], values, side="right")]
    return np.asarray((below + up_to) / (2 * sums[-1]), dtype=np.float64)
