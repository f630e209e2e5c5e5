"""Mean squared and mean absolute error."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from hf_trainplus.evaluation.metrics.base import AdditiveMetric, Float64Array, ratio
from hf_trainplus.evaluation.metrics.score_arrays import score_pairs


class _MeanError(AdditiveMetric):
    greater_is_better = False
    form = "scores"
    per_example = True

    def __init__(self) -> None:
        self.primary = self.name

    @property
    def statistics(self) -> int:
        """Two columns: summed error, rows."""
        return 2

    @abstractmethod
    def _error(self, difference: Float64Array) -> Float64Array: ...

    def example_statistics(self, predictions: Any, references: Any) -> Float64Array:
        """Return (n, 2): the error of each row (the mean over its outputs) and 1."""
        predicted, true = score_pairs(predictions, references, self.name)
        error = self._error(predicted - true)
        row_error = error.reshape(len(error), -1).mean(axis=1) if error.size else np.empty(len(error))
        return np.stack([row_error, np.ones(len(row_error))], axis=1)

    def primary_from_totals(self, totals: Float64Array) -> Float64Array:
        """Return summed error over rows."""
        return ratio(totals[..., 0], totals[..., 1])


class MeanSquaredError(_MeanError):
    """Mean squared error over rows and outputs (scikit-learn's ``mean_squared_error``).

    NaN in a prediction gives NaN, where scikit-learn raises. It takes no sample weights.

    Args:
        squared: False for its root, which is no mean over rows (then for one output a row only).

    Raises:
        ValueError: ``squared=False`` and rows of several outputs.

    Logged keys: ``mse`` (squared units of the target; its units with ``squared=False``).

    Example:
        >>> metric = MeanSquaredError()
        >>> metric.update([1.0, 2.0], [1.0, 4.0])
        >>> metric.compute()
        {'mse': 2.0}
    """

    name = "mse"

    def __init__(self, squared: bool = True) -> None:
        super().__init__()
        self.squared = squared
        self.per_example = squared

    def _error(self, difference: Float64Array) -> Float64Array:
        if not self.squared and difference.ndim > 1:
            raise ValueError(
                f"mse with squared=False was given rows of shape {difference.shape[1:]}; the root of several outputs "
                "is no function of sums: use squared=True, or one output a row."
            )
        return difference**2

    def primary_from_totals(self, totals: Float64Array) -> Float64Array:
        """Return summed error over rows, or its root."""
        mean = super().primary_from_totals(totals)
        return mean if self.squared else np.sqrt(mean)


class MeanAbsoluteError(_MeanError):
    """Mean absolute error over rows and outputs (scikit-learn's ``mean_absolute_error``).

    NaN in a prediction gives NaN, where scikit-learn raises. It takes no sample weights.

    Logged keys: ``mae`` (units of the target).

    Example:
        >>> metric = MeanAbsoluteError()
        >>> metric.update([1.0, 2.0], [1.0, 4.0])
        >>> metric.compute()
        {'mae': 1.0}
    """

    name = "mae"

    def _error(self, difference: Float64Array) -> Float64Array:
        return np.abs(difference)
