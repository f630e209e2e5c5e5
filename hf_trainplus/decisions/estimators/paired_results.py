"""The difference of one metric between two evaluations of the same rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.estimators.of_results import design_of_results
from hf_trainplus.decisions.estimators.paired import difference_interval, loss_difference_interval
from hf_trainplus.decisions.estimators.uncertainty import Estimate
from hf_trainplus.decisions.strategies.subset_value import Subset
from hf_trainplus.results import ExampleResults


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
    design = design_of_results(current, order, n_total, subset, clusters)
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
