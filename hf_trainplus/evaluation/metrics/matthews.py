"""Matthews correlation of predicted and true classes."""

from __future__ import annotations

import numpy as np

from hf_trainplus.evaluation.metrics.base import Float64Array, ratio
from hf_trainplus.evaluation.metrics.class_counts import ClassCountMetric


class MatthewsCorrelation(ClassCountMetric):
    """Correlation of two or more classes (scikit-learn's ``matthews_corrcoef``).

    0 where predictions or targets are all of one class. It takes no 0/1 label vectors and no sample weights; tokens
    with target -100 are dropped. The formula is R_K of Gorodkin (2004), over sums of counts a class.

    Args:
        num_labels: number of classes, see ``ClassCountMetric``.

    Logged keys: ``matthews_correlation`` (-1 to 1).

    Example:
        >>> metric = MatthewsCorrelation()
        >>> metric.update([1, 1, 0, 0], [1, 1, 0, 1])
        >>> round(metric.compute()["matthews_correlation"], 4)
        0.5774
    """

    name = "matthews_correlation"

    def __init__(self, num_labels: int | None = None) -> None:
        super().__init__(None, num_labels)

    def primary_from_totals(self, totals: Float64Array) -> Float64Array:
        """Return the correlation (...) of counts (..., 3C)."""
        counts = totals.reshape(*totals.shape[:-1], -1, 3)
        right, predicted, true = counts[..., 0].sum(axis=-1), counts[..., 1], counts[..., 2]
        total = true.sum(axis=-1)
        covariance = right * total - (predicted * true).sum(axis=-1)
        spread = (total**2 - (predicted**2).sum(axis=-1)) * (total**2 - (true**2).sum(axis=-1))
        correlation = ratio(covariance, np.sqrt(np.maximum(spread, 0.0)), 0.0)
        return np.where(total > 0, correlation, np.nan)
