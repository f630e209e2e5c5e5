"""Robust lines and spreads: a few wild points must not make a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

# of a normal distribution: standard deviation = 1.4826 x median absolute deviation
_MAD_TO_SD = 1.4826


@dataclass(frozen=True)
class Slope:
    """A slope with its interval; ``points`` is how many pairs of values it rests on."""

    value: float
    low: float
    high: float
    points: int


def theil_sen(x: npt.ArrayLike, y: npt.ArrayLike, *, confidence: float = 0.95) -> Slope:
    """Fit a line's slope by the median of all pairwise slopes.

    Up to 29 % of the points may be arbitrarily wrong. The interval takes the points to be independent around the
    line; a series that wanders by itself has a wider one.

    Args:
        x: (n,) positions, not all equal, n >= 3.
        y: (n,) values, finite.
        confidence: level of the interval, above 0 and below 1.

    Returns:
        The slope with Sen's interval (Sen 1968, by Kendall's variance with its correction for ties in ``y``).

    Raises:
        ValueError: fewer than 3 points, unequal lengths, values that are not finite, or a level out of range.

    Example:
        >>> theil_sen([0, 1, 2, 3, 4], [0.0, 2.0, 4.0, 6.0, 100.0]).value
        2.0
    """
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if xs.shape != ys.shape or xs.ndim != 1 or len(xs) < 3:
        raise ValueError(f"x has shape {xs.shape} and y {ys.shape}; allowed are two equal lengths of 3 or more.")
    if not (np.isfinite(xs).all() and np.isfinite(ys).all()) or not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence}; allowed is a level between 0 and 1, over finite x and y.")
    first, second = np.triu_indices(len(xs), k=1)
    apart = xs[second] != xs[first]
    if not apart.any():
        raise ValueError("x has one value only; give positions that differ.")
    slopes = np.sort((ys[second] - ys[first])[apart] / (xs[second] - xs[first])[apart])
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) * np.sqrt(_kendall_variance(ys))
    low = max(int(np.round((len(slopes) - reach) / 2)) - 1, 0)
    high = min(int(np.round((len(slopes) + reach) / 2)), len(slopes) - 1)
    return Slope(float(np.median(slopes)), float(slopes[low]), float(slopes[high]), len(xs))


def robust_spread(values: npt.ArrayLike) -> float:
    """Return the standard deviation that the median absolute deviation stands for; 0.0 for fewer than two values.

    Example:
        >>> round(robust_spread([1.0, 2.0, 3.0, 4.0, 500.0]), 4)
        1.4826
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size < 2:
        return 0.0
    return float(_MAD_TO_SD * np.median(np.abs(array - np.median(array))))


def rolling_median(values: npt.ArrayLike, width: int) -> npt.NDArray[np.float64]:
    """Return the medians of every window of ``width`` values.

    Args:
        values: (n,) values.
        width: window, 1 to n.

    Returns:
        (n - width + 1,) medians.

    Raises:
        ValueError: a width out of range.

    Example:
        >>> rolling_median([1.0, 9.0, 2.0, 3.0], 3).tolist()
        [2.0, 3.0]
    """
    array = np.asarray(values, dtype=np.float64)
    if not 1 <= width <= len(array):
        raise ValueError(f"width={width}; allowed is 1 to {len(array)}, the number of values.")
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(array, width), axis=1))


def detrended(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return what a robust line through (0, 1, 2, ...) leaves over; (n,) for n >= 3.

    Example:
        >>> detrended([0.0, 1.0, 2.0, 3.0, 9.0]).tolist()
        [0.0, 0.0, 0.0, 0.0, 5.0]
    """
    array = np.asarray(values, dtype=np.float64)
    x = np.arange(len(array), dtype=np.float64)
    rest = array - theil_sen(x, array).value * x
    return np.asarray(rest - np.median(rest))


def falling_fit(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the sequence that never rises and lies nearest to the values, by least squares.

    It follows a fall of any shape and has none of what swings about it. Pool adjacent violators (Ayer, Brunk, Ewing,
    Reid and Silverman 1955).

    Args:
        values: (n,) finite values.

    Returns:
        (n,) fit.

    Example:
        >>> falling_fit([9.0, 3.0, 5.0, 1.0]).tolist()
        [9.0, 4.0, 4.0, 1.0]
    """
    means: list[float] = []
    counts: list[int] = []
    for value in np.asarray(values, dtype=np.float64).tolist():
        mean, count = value, 1
        while means and means[-1] < mean:
            before, pooled = means.pop(), counts.pop()
            mean = (mean * count + before * pooled) / (count + pooled)
            count += pooled
        means.append(mean)
        counts.append(count)
    return np.repeat(np.asarray(means, dtype=np.float64), counts)


def _kendall_variance(y: npt.NDArray[np.float64]) -> float:
    n = len(y)
    _, counts = np.unique(y, return_counts=True)
    ties = float((counts * (counts - 1) * (2 * counts + 5)).sum())
    return (n * (n - 1) * (2 * n + 5) - ties) / 18.0
