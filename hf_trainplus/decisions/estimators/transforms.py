"""Scales on which an interval is symmetric: a share stays between 0 and 1, a correlation between -1 and 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hf_trainplus.decisions.estimators.assembly import Bounds
from hf_trainplus.decisions.estimators.quantiles import critical_value
from hf_trainplus.decisions.estimators.sampling_error import SamplingError


@dataclass(frozen=True)
class Scale:
    """A scale for intervals: a function, its inverse and its slope.

    Args:
        forward: maps a value to the scale.
        inverse: maps back.
        slope: derivative of ``forward``.
        low: least value; the scale has no interval there.
        high: largest value.
    """

    forward: Callable[[float], float]
    inverse: Callable[[float], float]
    slope: Callable[[float], float]
    low: float
    high: float

    def bounds(self, value: float, error: SamplingError, confidence: float) -> Bounds:
        """Return the interval that is symmetric on the scale, or None at the scale's ends and with an unknown error."""
        if not error.known or not self.low < value < self.high:
            return None
        reach = critical_value(confidence, error.degrees) * math.sqrt(error.variance) * self.slope(value)
        return self.inverse(self.forward(value) - reach), self.inverse(self.forward(value) + reach)


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


SCALES = {
    "identity": Scale(lambda v: v, lambda v: v, lambda _: 1.0, -math.inf, math.inf),
    "log": Scale(math.log, lambda v: math.exp(min(v, 700.0)), lambda v: 1 / v, 0.0, math.inf),
    "logit": Scale(lambda v: math.log(v / (1 - v)), _expit, lambda v: 1 / (v * (1 - v)), 0.0, 1.0),
    "atanh": Scale(math.atanh, math.tanh, lambda v: 1 / (1 - v * v), -1.0, 1.0),
}


def scale_named(name: str) -> Scale:
    """Return a scale by name.

    Raises:
        ValueError: an unknown name.
    """
    if name not in SCALES:
        raise ValueError(f"transform is {name!r}; allowed are {', '.join(map(repr, SCALES))}.")
    return SCALES[name]
