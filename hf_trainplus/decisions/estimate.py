"""Every estimator under one roof, and ``estimate``: a metric of per-example results with its interval."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.intervals import loss_interval, mean_interval, ratio_interval
from hf_trainplus.decisions.estimators.proportions import wilson_interval
from hf_trainplus.decisions.estimators.uncertainty import Estimate
from hf_trainplus.decisions.strategies.subset_value import Subset
from hf_trainplus.results import ExampleResults, Int64Array

__all__ = [
    "Estimate",
    "SampleDesign",
    "estimate",
    "loss_interval",
    "mean_interval",
    "perplexity_of",
    "ratio_interval",
    "wilson_interval",
]


def estimate(
    results: ExampleResults,
    metric: str = "loss",
    *,
    confidence: float = 0.95,
    n_total: int | None = None,
    subset: Subset | None = None,
    clusters: npt.ArrayLike | str | None = None,
) -> Estimate:
    """Estimate one metric of the full set from per-example results.

    It does not judge whether the rows are a random sample: a subset states it by its weights and strata. It does not
    compute corpus metrics from statistics (``smooth_interval``) nor from predictions (``f1_interval`` and its kin).

    Args:
        results: one row an example.
        metric: ``"loss"`` (token-weighted), ``"perplexity"``, or the name of a score of the results.
        confidence: level of the interval, in (0, 1).
        n_total: rows of the full set when the results are a simple random sample; None when they are the set.
        subset: how the rows were drawn, in place of n_total.
        clusters: (n,) cluster of each row, or the name of a group column that holds it.

    Returns:
        The estimate; ``exact`` when the results cover the set.

    Raises:
        ValueError: an unknown metric or group column, both n_total and subset, or results that are not the subset's.

    Example:
        >>> results = ExampleResults([0, 1, 2], [2.0, 1.0, 0.0], [1, 1, 1], scores={"accuracy": [0, 1, 1]})
        >>> estimate(results).value, round(estimate(results, "accuracy").ci_low, 3)
        (1.0, 0.208)
    """
    # in the order of the dataset, so that sums round alike whatever the order of rows and the number of ranks
    order = np.argsort(results.index, kind="stable")
    design = _design(results.index[order], n_total, subset, _cluster_column(results, clusters, order))
    if metric in ("loss", "perplexity") and metric not in results.scores:
        sums, counts = results.loss_sum[order], results.target_count[order]
        loss = loss_interval(sums, counts, design=design, confidence=confidence)
        return perplexity_of(loss) if metric == "perplexity" else loss
    if metric not in results.scores:
        raise ValueError(f"metric is {metric!r}; allowed are {', '.join(['loss', 'perplexity', *results.scores])}.")
    return mean_interval(results.scores[metric][order], design=design, confidence=confidence)


def perplexity_of(loss: Estimate) -> Estimate:
    """Turn a loss in nats per token into perplexity; the interval's ends are mapped, so it is not symmetric.

    Args:
        loss: estimate of a token-weighted cross entropy.

    Returns:
        The estimate of exp(loss); infinite where the exponential overflows.

    Example:
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


def _cluster_column(
    results: ExampleResults, clusters: npt.ArrayLike | str | None, order: Int64Array
) -> npt.NDArray[Any] | None:
    if clusters is None:
        return None
    if not isinstance(clusters, str):
        return np.asarray(clusters)[order]
    if clusters not in results.groups:
        raise ValueError(f"clusters is {clusters!r}; the results' group columns are {sorted(results.groups)}.")
    return results.groups[clusters][order]


def _design(
    index: Int64Array, n_total: int | None, subset: Subset | None, clusters: npt.NDArray[Any] | None
) -> SampleDesign:
    if subset is None:
        return SampleDesign.simple(len(index), n_total, clusters=clusters)
    if n_total is not None:
        raise ValueError("n_total and subset were both given; the subset knows its n_total: leave n_total out.")
    return subset.design_of(index, clusters=clusters)
