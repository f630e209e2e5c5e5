"""Pearson correlation from moments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.evaluation.metrics.base import AdditiveMetric, Float64Array, StateArrays, ratio
from hf_trainplus.evaluation.metrics.score_arrays import score_pairs

if TYPE_CHECKING:
    from typing_extensions import Self


class Pearson(AdditiveMetric):
    """Linear correlation of predictions and targets (scipy's ``pearsonr``), without its p-value.

    The state is centred moments (count, means, centred squares and product), merged by the pairwise update of Chan,
    Golub and LeVeque (1979), so that an offset far larger than the spread costs no digits. The additive statistics of
    a row are raw moments and do lose them: with an offset of 10**k spreads, about 2k of 16 digits.

    Logged keys: ``pearsonr`` (-1 to 1; NaN when predictions or targets are constant).

    Example:
        >>> metric = Pearson()
        >>> metric.update([1.0, 2.0, 3.0], [2.0, 4.0, 7.0])
        >>> round(metric.compute()["pearsonr"], 6)
        0.993399
    """

    name = "pearsonr"
    form = "scores"

    def __init__(self) -> None:
        self.primary = self.name
        self.reset()

    @property
    def statistics(self) -> int:
        """Six columns: 1, x, y, xx, yy, xy."""
        return 6

    def example_statistics(self, predictions: Any, references: Any) -> Float64Array:
        """Return (n, 6): 1, x, y, xx, yy, xy of each row.

        Raises:
            ValueError: rows have several outputs.
        """
        x, y = self._pairs(predictions, references)
        return np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=1)

    def _pairs(self, predictions: Any, references: Any) -> tuple[Float64Array, Float64Array]:
        x, y = score_pairs(predictions, references, self.name)
        if x.ndim != 1:
            raise ValueError(f"{self.name} was given rows of shape {x.shape[1:]}; give one number a row.")
        return x, y

    def primary_from_totals(self, totals: Float64Array) -> Float64Array:
        """Return the correlation (...) of summed raw moments (..., 6)."""
        count, x, y, xx, yy, xy = np.moveaxis(totals, -1, 0)
        return _correlation(xx - ratio(x * x, count), yy - ratio(y * y, count), xy - ratio(x * y, count))

    def update(self, predictions: Any, references: Any) -> None:
        """Take in a batch of n rows; see ``Metric.update``."""
        x, y = self._pairs(predictions, references)
        if len(x):
            dx, dy = x - x.mean(), y - y.mean()
            self._combine(np.array([len(x), x.mean(), y.mean(), (dx * dx).sum(), (dy * dy).sum(), (dx * dy).sum()]))

    def add(self, statistics: Float64Array) -> None:
        """Take in rows (n, 6) of ``example_statistics``."""
        count, x, y, xx, yy, xy = np.asarray(statistics, dtype=np.float64).sum(axis=0)
        if count:
            self._combine(
                np.array([count, x / count, y / count, xx - x * x / count, yy - y * y / count, xy - x * y / count])
            )

    def _combine(self, moments: Float64Array) -> None:
        count, mean_x, mean_y = self._moments[:3]
        total = count + moments[0]
        shift_x, shift_y = moments[1] - mean_x, moments[2] - mean_y
        weight = count * moments[0] / total
        self._moments[0] = total
        self._moments[1:3] += np.array([shift_x, shift_y]) * moments[0] / total
        self._moments[3:] += moments[3:] + weight * np.array([shift_x**2, shift_y**2, shift_x * shift_y])

    def reset(self) -> None:
        """Forget all rows."""
        self._moments = np.zeros(6)

    def compute(self) -> dict[str, float]:
        """Return the correlation over all rows so far."""
        return {self.primary: float(_correlation(*self._moments[3:]))}

    def state_arrays(self) -> StateArrays:
        """Return count, means, centred squares and centred product."""
        return {"moments": self._moments.copy()}

    def load_state_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Put back what ``state_arrays`` returned."""
        self._moments = np.array(arrays["moments"], dtype=np.float64)

    def _merge(self, other: Self) -> None:
        if other._moments[0]:
            self._combine(other._moments)


def _correlation(xx: Float64Array, yy: Float64Array, xy: Float64Array) -> Float64Array:
    spread = np.sqrt(np.maximum(xx, 0.0)) * np.sqrt(np.maximum(yy, 0.0))
    return np.clip(ratio(xy, spread), -1.0, 1.0)
