"""Tango's interval for the mean of -1, 0 and 1: of two checkpoints, one right where the other is wrong."""

from __future__ import annotations

import math

from hf_trainplus.decisions.estimators.assembly import Bounds, linearized_estimate
from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.proportions import effective_rows
from hf_trainplus.decisions.estimators.quantiles import critical_value
from hf_trainplus.decisions.estimators.sampling_error import SamplingError
from hf_trainplus.decisions.estimators.uncertainty import Estimate
from hf_trainplus.decisions.estimators.variance import Variance
from hf_trainplus.results import Float64Array

_HALVINGS = 60
# see SHARE_PULL; discordant pairs are rarer than wrong rows, so that strata without any are more often there by luck
SIGN_PULL = 0.5


def sign_estimate(column: Float64Array, design: SampleDesign, variance: Variance, confidence: float) -> Estimate:
    """Score interval for a paired difference of 0/1 scores.

    A symmetric interval needs some ten discordant pairs; with none it would claim certainty.

    Args:
        column: (n,) values -1, 0 and 1.
        design: how the rows were drawn.
        variance: of the mean, see ``linearized_variance``.
        confidence: level in (0, 1).

    Returns:
        The estimate.

    Source:
        Tango 1998, Statistics in Medicine 17; for strata and clusters at the effective number of rows.
    """
    plus, minus = design.mean(column > 0), design.mean(column < 0)
    value = plus - minus

    def bounds(error: SamplingError, for_set: bool) -> Bounds:
        rows = effective_rows(plus + minus - value**2, error, design, for_set)
        if math.isnan(rows):
            return None
        degrees = error.degrees if design.clusters is not None else math.inf
        return (
            (value, value) if math.isinf(rows) else tango_bounds(plus, minus, rows, critical_value(confidence, degrees))
        )

    return linearized_estimate(value, variance, design, confidence, method="tango", bounds=bounds)


def tango_bounds(plus: float, minus: float, rows: float, critical: float) -> tuple[float, float]:
    """Differences that the data do not reject, as (low, high).

    Args:
        plus: share of rows with +1.
        minus: share of rows with -1.
        rows: number of independent rows, > 0.
        critical: critical value, > 0.

    Example:
        >>> low, high = tango_bounds(0.0, 0.0, 100, 1.96)
        >>> round(low, 3), round(high, 3)
        (-0.037, 0.037)
    """

    def crossing(inner: float, outer: float) -> float:
        for _ in range(_HALVINGS):
            middle = (inner + outer) / 2
            rejected = abs(_score(plus, minus, rows, middle)) > critical
            inner, outer = (inner, middle) if rejected else (middle, outer)
        return (inner + outer) / 2

    return crossing(plus - minus, -1.0), crossing(plus - minus, 1.0)


def _score(plus: float, minus: float, rows: float, difference: float) -> float:
    """Score statistic at an assumed difference; the share of -1 there is the root of a quadratic."""
    linear = -plus - minus + (2 - plus + minus) * difference
    product = -minus * difference * (1 - difference)
    root = (math.sqrt(max(linear**2 - 8 * product, 0.0)) - linear) / 4
    variance = (2 * root + difference * (1 - difference)) / rows
    distance = plus - minus - difference
    if variance <= 0:
        return 0.0 if distance == 0 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)
