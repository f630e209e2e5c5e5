"""Every estimator under one roof, and ``estimate``: a metric of per-example results with its interval."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.estimators.auc import auc_interval
from hf_trainplus.decisions.estimators.delta import smooth_interval
from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.f1 import f1_interval
from hf_trainplus.decisions.estimators.intervals import loss_interval, mean_interval, ratio_interval
from hf_trainplus.decisions.estimators.jackknife import jackknife_interval, jackknife_intervals
from hf_trainplus.decisions.estimators.mcc import mcc_interval
from hf_trainplus.decisions.estimators.paired import (
    anchored_estimate,
    difference_interval,
    loss_difference_interval,
)
from hf_trainplus.decisions.estimators.proportions import wilson_interval
from hf_trainplus.decisions.estimators.uncertainty import Estimate
from hf_trainplus.decisions.strategies.subset_value import Subset
from hf_trainplus.results import ExampleResults, Int64Array

__all__ = [
    "Estimate",
    "SampleDesign",
    "anchored_estimate",
    "auc_interval",
    "difference_interval",
    "estimate",
    "estimate_difference",
    "f1_interval",
    "jackknife_interval",
    "jackknife_intervals",
    "loss_difference_interval",
    "loss_interval",
    "mcc_interval",
    "mean_interval",
    "perplexity_of",
    "ratio_interval",
    "smooth_interval",
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


def estimate_difference(
    current: ExampleResults,
    reference: ExampleResults,
    metric: str = "loss",
    *,
    confidence: float = 0.95,
    n_total: int | None = None,
    subset: Subset | None = None,
    clusters: npt.ArrayLike | str | None = None,
) -> Estimate:
    """Estimate ``current - reference`` of one metric from results on the same rows.

    It does not judge the difference: see ``compare_runs`` for a verdict, the race for a decision while training.

    Args:
        current: results of one checkpoint.
        reference: results of the other on the same rows, in any order.
        metric: ``"loss"`` or the name of a score of both.
        confidence: level of the interval, in (0, 1).
        n_total: rows of the full set when the results are a simple random sample; None when they are the set.
        subset: how the rows were drawn, in place of n_total.
        clusters: (n,) cluster of each row of ``current``, or the name of its group column.

    Returns:
        The estimate; ``exact`` when the results cover the set.

    Raises:
        ValueError: other rows, other target counts, an unknown metric, or both n_total and subset.

    Example:
        >>> first = ExampleResults([0, 1], [2.0, 1.0], [1, 1])
        >>> second = ExampleResults([1, 0], [1.5, 2.0], [1, 1])
        >>> estimate_difference(first, second).value
        -0.25
    """
    order, other = (np.argsort(results.index, kind="stable") for results in (current, reference))
    if not np.array_equal(current.index[order], reference.index[other]):
        different = len(np.setxor1d(current.index, reference.index))
        raise ValueError(f"{different} rows are in one of the two results only; compare results on the same rows.")
    design = _design(current.index[order], n_total, subset, _cluster_column(current, clusters, order))
    if metric == "loss" and metric not in current.scores:
        counts = current.target_count[order]
        if not np.array_equal(counts, reference.target_count[other]):
            raise ValueError("the target counts differ; a difference of losses needs the same targets in both.")
        sums = current.loss_sum[order], reference.loss_sum[other]
        return loss_difference_interval(*sums, counts, design=design, confidence=confidence)
    shared = [name for name in current.scores if name in reference.scores]
    if metric not in shared:
        raise ValueError(f"metric is {metric!r}; allowed are {', '.join(['loss', *shared])}.")
    scores = current.scores[metric][order], reference.scores[metric][other]
    return difference_interval(*scores, design=design, confidence=confidence)


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
