"""A metric of per-example results with its interval, of the whole set and of its slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.group_codes import group_codes
from hf_trainplus.decisions.estimators.intervals import loss_interval, mean_interval
from hf_trainplus.decisions.estimators.perplexity import perplexity_of
from hf_trainplus.decisions.estimators.uncertainty import Estimate
from hf_trainplus.decisions.strategies.subset_value import Subset
from hf_trainplus.results import ExampleResults, Int64Array


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
    return _of_rows(results, metric, order, design_of_results(results, order, n_total, subset, clusters), confidence)


def estimate_slices(
    results: ExampleResults,
    metric: str,
    group: str,
    *,
    confidence: float = 0.95,
    n_total: int | None = None,
    subset: Subset | None = None,
    clusters: npt.ArrayLike | str | None = None,
) -> dict[Any, Estimate]:
    """Estimate one metric in every slice of the results.

    It does not correct for looking at many slices: of 20, one misses its 95 % interval by chance. A slice of a sample
    has no known size: ``n_total`` is then an estimate too.

    Args:
        results: one row an example.
        metric: ``"loss"``, ``"perplexity"``, or the name of a score of the results.
        group: name of the group column that cuts the slices.
        confidence: level of the intervals, in (0, 1).
        n_total: rows of the full set when the results are a simple random sample; None when they are the set.
        subset: how the rows were drawn, in place of n_total.
        clusters: (n,) cluster of each row, or the name of a group column that holds it.

    Returns:
        value of the group column -> estimate of that slice, in the order of the values; rows whose value is missing
        (None, NaN) are the slice None.

    Raises:
        ValueError: an unknown metric or group column, both n_total and subset, or results that are not the subset's.

    Example:
        >>> results = ExampleResults([0, 1, 2], [2.0, 1.0, 0.5], [1, 1, 1], groups={"topic": ["a", "b", "b"]})
        >>> {name: found.value for name, found in estimate_slices(results, "loss", "topic").items()}
        {'a': 2.0, 'b': 0.75}
    """
    if group not in results.groups:
        raise ValueError(f"group is {group!r}; the results' group columns are {sorted(results.groups)}.")
    order = np.argsort(results.index, kind="stable")
    design = design_of_results(results, order, n_total, subset, clusters)
    codes, names = group_codes(results.groups[group][order])
    by_code, ends = np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))
    found = {}
    for name, rows in zip(names, np.split(by_code, ends[:-1]), strict=True):
        found[name] = _of_rows(results, metric, order[rows], design.take(rows), confidence)
    return found


def design_of_results(
    results: ExampleResults,
    order: Int64Array,
    n_total: int | None = None,
    subset: Subset | None = None,
    clusters: npt.ArrayLike | str | None = None,
) -> SampleDesign:
    """Return the design of results taken in this order, for any estimator that takes a design.

    Args:
        results: one row an example.
        order: (n,) positions in the results.
        n_total: rows of the full set when the results are a simple random sample; None when they are the set.
        subset: how the rows were drawn, in place of n_total.
        clusters: (n,) cluster of each row of the results, or the name of a group column that holds it.

    Raises:
        ValueError: an unknown group column, both n_total and subset, or results that are not the subset's.

    Example:
        >>> results = ExampleResults([1, 0], [2.0, 1.0], [1, 1])
        >>> design_of_results(results, np.argsort(results.index), n_total=10).n_total
        10
    """
    column = _cluster_column(results, clusters, order)
    if subset is None:
        return SampleDesign.simple(len(order), n_total, clusters=column)
    if n_total is not None:
        raise ValueError("n_total and subset were both given; the subset knows its n_total: leave n_total out.")
    return subset.design_of(results.index[order], clusters=column)


def _of_rows(
    results: ExampleResults, metric: str, rows: Int64Array, design: SampleDesign, confidence: float
) -> Estimate:
    if metric in results.scores:
        return mean_interval(results.scores[metric][rows], design=design, confidence=confidence)
    if metric not in ("loss", "perplexity"):
        raise ValueError(f"metric is {metric!r}; allowed are {', '.join(['loss', 'perplexity', *results.scores])}.")
    loss = loss_interval(results.loss_sum[rows], results.target_count[rows], design=design, confidence=confidence)
    return perplexity_of(loss) if metric == "perplexity" else loss


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
