"""Error of a sample whose draw held the means of some numbers near those of the full set."""

from __future__ import annotations

import numpy as np

from hf_trainplus.decisions.estimators.sampling_error import SamplingError
from hf_trainplus.results import Float64Array


def balanced_error(values: Float64Array, balance: Float64Array, unseen: float) -> SamplingError:
    """Error of the mean of values under a balanced draw: only what the balanced numbers do not explain is left open.

    It takes the draw for random beside the balance; what else it evened out makes the error smaller than stated.

    Args:
        values: (n,) influence of each row on the estimate, of equal weight.
        balance: (n, q) numbers with mean 0 over the full set.
        unseen: share of the set's rows that are not in the sample.

    Returns:
        The error; unknown where the numbers leave no degree of freedom.

    Source:
        Deville and Tillé 2005, J. Statistical Planning and Inference 128(2): the variance of a balanced sample is that
        of the residuals of a regression on the balanced numbers, n / (n - q). What the draw left of imbalance, over all
        numbers, times the slopes is added.

    Example:
        >>> flag = np.array([[0.5], [-0.5]] * 4)
        >>> values = flag[:, 0] + np.array([0.1, 0.1, -0.1, -0.1] * 2)
        >>> round(balanced_error(values, flag, 0.5).variance, 6)
        0.000833
        >>> round(balanced_error(values, flag[:, :0], 0.5).variance, 6)         # nothing balanced
        0.018571
    """
    n = len(values)
    columns = np.column_stack([np.ones(n), balance])
    # the normal equations: flags are far from the edge of precision, and n may be thousands
    slopes, _, rank, _ = np.linalg.lstsq(columns.T @ columns, columns.T @ values, rcond=1e-10)
    degrees = n - int(rank)
    if degrees < 1:
        return SamplingError.unknown()
    residuals = values - columns @ slopes
    left = float(slopes[1:] @ slopes[1:]) * float((balance.mean(axis=0) ** 2).mean()) if balance.shape[1] else 0.0
    variance = float(residuals @ residuals) / degrees / n * unseen
    if variance == 0:
        return SamplingError(left, float(degrees))
    third = float((residuals**3).sum()) * n / max((n - 1) * (n - 2), 1) / n**2
    scale = (variance + left) ** 1.5
    return SamplingError(
        variance + left, float(degrees), third * unseen * (2 * unseen - 1) / scale, third * unseen**2 / scale
    )
