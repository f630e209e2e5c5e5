"""From a value and its error to an ``Estimate``: the last step of every estimator."""

from __future__ import annotations

import math
from collections.abc import Callable

from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.quantiles import critical_value
from hf_trainplus.decisions.estimators.sampling_error import SamplingError
from hf_trainplus.decisions.estimators.uncertainty import Estimate
from hf_trainplus.decisions.estimators.variance import Variance

Bounds = tuple[float, float] | None
# (error, for the set rather than the population) -> bounds, or None where there are none
BoundsRule = Callable[[SamplingError, bool], Bounds]


def resolve_design(n: int, n_total: int | None, design: SampleDesign | None) -> SampleDesign:
    """Return the design to use for n rows.

    Raises:
        ValueError: both n_total and design, or a design of another number of rows.
    """
    if design is None:
        return SampleDesign.simple(n, n_total)
    if n_total is not None:
        raise ValueError("n_total and design were both given; the design knows its n_total: leave n_total out.")
    if design.n != n:
        raise ValueError(f"the design has {design.n} rows and the values have {n}; give the design of these rows.")
    return design


def without_interval(value: float | None, design: SampleDesign, confidence: float, method: str) -> Estimate:
    """Return a value that has no interval: what is not known stays None."""
    critical_value(confidence)
    return Estimate(value, None, None, None, None, design.n, design.n_total, confidence, design.exact, method)


def linearized_estimate(
    value: float,
    variance: Variance,
    design: SampleDesign,
    confidence: float,
    *,
    method: str,
    bounds: BoundsRule | None = None,
) -> Estimate:
    """Assemble an estimate from its variance; ``bounds`` replaces the skewness-corrected t interval."""

    def corrected(error: SamplingError, _: bool) -> Bounds:
        return error.interval(value, confidence)

    rule = corrected if bounds is None else bounds
    population = _finite_or_none(rule(variance.of_population, False))
    own = population if design.exact else _finite_or_none(rule(variance.of_set, True))
    return Estimate(
        value=value,
        ci_low=own[0] if own else None,
        ci_high=own[1] if own else None,
        standard_error=_root_or_none(variance.of_set),
        population_standard_error=_root_or_none(variance.of_population),
        n=design.n,
        n_total=design.n_total,
        confidence=confidence,
        exact=design.exact,
        method=method,
        population_ci_low=population[0] if population else None,
        population_ci_high=population[1] if population else None,
    )


def _finite_or_none(bounds: Bounds) -> Bounds:
    return bounds if bounds is not None and all(map(math.isfinite, bounds)) else None


def _root_or_none(error: SamplingError) -> float | None:
    return math.sqrt(error.variance) if math.isfinite(error.variance) else None
