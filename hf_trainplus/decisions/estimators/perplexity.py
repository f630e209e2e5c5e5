"""Perplexity from a loss."""

from __future__ import annotations

import math
from dataclasses import replace

from hf_trainplus.decisions.estimators.uncertainty import Estimate


def perplexity_of(loss: Estimate) -> Estimate:
    """Turn a loss in nats per token into perplexity; the interval's ends are mapped, so it is not symmetric.

    Args:
        loss: estimate of a token-weighted cross entropy.

    Returns:
        The estimate of exp(loss); infinite where the exponential overflows.

    Example:
        >>> from hf_trainplus.decisions.estimate import loss_interval
        >>> perplexity_of(loss_interval([0.0, 0.0], [1, 1])).value
        1.0
    """
    value = _exp(loss.value)

    def scaled(error: float | None) -> float | None:
        return None if error is None or value is None else error * value

    return replace(
        loss,
        value=value,
        ci_low=_exp(loss.ci_low),
        ci_high=_exp(loss.ci_high),
        standard_error=scaled(loss.standard_error),
        population_standard_error=scaled(loss.population_standard_error),
        population_ci_low=_exp(loss.population_ci_low),
        population_ci_high=_exp(loss.population_ci_high),
        method=f"exp of {loss.method}",
    )


def _exp(value: float | None) -> float | None:
    try:
        return None if value is None else math.exp(value)
    except OverflowError:
        return math.inf
