"""Quantiles of the normal and of Student's t distribution, so that intervals need no scipy."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_TERMS = 300
_STEPS = 200
_TINY = 1e-300


def normal_quantile(probability: float) -> float:
    """Return the point below which a standard normal variable falls with this probability.

    Args:
        probability: in (0, 1).

    Returns:
        The quantile, a float.

    Raises:
        statistics.StatisticsError: a probability outside (0, 1).

    Example:
        >>> round(normal_quantile(0.975), 6)
        1.959964
    """
    return NormalDist().inv_cdf(probability)


def t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Return the quantile of Student's t distribution.

    It does not reach beyond a tail of 1e-12, where a normal approximation would serve as badly.

    Args:
        probability: in (0, 1).
        degrees_of_freedom: above 0, fractions allowed (Satterthwaite); infinity gives the normal quantile.

    Returns:
        The quantile, a float; its relative error is under 1e-9.

    Raises:
        ValueError: degrees of freedom that are not above 0, or a probability outside (0, 1).

    Source:
        The tail is the regularized incomplete beta function I_x(df/2, 1/2) at x = df / (df + t^2), here by its
        continued fraction (DLMF 8.17.22), inverted by Newton's method.

    Example:
        >>> round(t_quantile(0.975, 19), 6)
        2.093024
    """
    if not degrees_of_freedom > 0:
        raise ValueError(f"degrees_of_freedom is {degrees_of_freedom}; allowed are values above 0.")
    if not 0 < probability < 1:
        raise ValueError(f"probability is {probability}; allowed are values between 0 and 1.")
    if degrees_of_freedom > 1e7:
        return normal_quantile(probability)
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees_of_freedom)
    return _invert_upper_tail(1 - probability, degrees_of_freedom)


@lru_cache(maxsize=1024)
def _invert_upper_tail(tail: float, degrees_of_freedom: float) -> float:
    """Newton's steps from the normal quantile, kept inside a bracket and halved where they would leave it."""
    low, high = 0.0, 1.0
    while _upper_tail(high, degrees_of_freedom) > tail:
        low, high = high, 2 * high
    point = min(max(normal_quantile(1 - tail), low), high)
    for _ in range(_STEPS):
        excess = _upper_tail(point, degrees_of_freedom) - tail
        low, high = (point, high) if excess > 0 else (low, point)
        step = excess / _density(point, degrees_of_freedom)
        if abs(step) <= 1e-12 * max(point, 1.0):
            break
        point = point + step if low < point + step < high else (low + high) / 2
    return point


def _density(t: float, degrees_of_freedom: float) -> float:
    half = (degrees_of_freedom + 1) / 2
    logarithm = math.lgamma(half) - math.lgamma(degrees_of_freedom / 2) - half * math.log1p(t * t / degrees_of_freedom)
    return math.exp(logarithm) / math.sqrt(degrees_of_freedom * math.pi)


def critical_value(confidence: float, degrees_of_freedom: float = math.inf) -> float:
    """Return the two-sided critical value of an interval at this confidence.

    Args:
        confidence: level of the interval, in (0, 1), e.g. 0.95.
        degrees_of_freedom: above 0; infinity for a normal interval.

    Returns:
        The multiple of the standard error that reaches to each side.

    Raises:
        ValueError: a confidence outside (0, 1).

    Example:
        >>> round(critical_value(0.95), 4), round(critical_value(0.95, 10), 4)
        (1.96, 2.2281)
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; allowed are values between 0 and 1, e.g. confidence=0.95.")
    return t_quantile((1 + confidence) / 2, degrees_of_freedom)


def _upper_tail(t: float, degrees_of_freedom: float) -> float:
    """P(T > t) for t >= 0."""
    return 0.5 * _incomplete_beta(degrees_of_freedom / (degrees_of_freedom + t * t), degrees_of_freedom / 2, 0.5)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularized incomplete beta function; the continued fraction converges fast below (a + 1) / (a + b + 2)."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(front) / (a * _beta_fraction(x, a, b))


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Evaluate 1 + d1/(1 + d2/(1 + ...)) by the modified Lentz method."""
    value = numerator = 1.0
    denominator = 0.0
    for term in range(1, _TERMS):
        m = term // 2
        if term % 2:
            coefficient = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            coefficient = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominator = 1 / _away_from_zero(1 + coefficient * denominator)
        numerator = _away_from_zero(1 + coefficient / numerator)
        value *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-15:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
