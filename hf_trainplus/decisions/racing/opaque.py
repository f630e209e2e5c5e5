"""A metric that is only a function of rows: raced by the grouped jackknife, on proportional samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.design import Design
from hf_trainplus.decisions.racing.paired import PairedDifference
from hf_trainplus.results import ExampleResults, Float64Array, Int64Array

GROUPS = 20
LEAST_SHARE = 0.3
LEAST_BOUND = 4.0


@dataclass(frozen=True)
class OpaqueMetric:
    """Any ``function(rows, payload)`` that is symmetric in its rows, such as AUC or a wrapped ``compute_metrics``.

    Its rows are read at equal rates, its standard error comes from leaving out one of 20 random groups at a time, and
    no comparison is settled before 30 % of the rows or under 4 standard errors: it saves less than a metric of sums.
    A function that depends on the order of rows or on which rows stand in one batch must not be raced.

    Args:
        name: name of the payload in ``ExampleResults.statistics`` (n, k) and in logs.
        function: maps (n,) rows and their (n, k) payload to the metric.
        greater_is_better: True when the larger value wins.

    Example:
        >>> median = OpaqueMetric("median", lambda rows, payload: float(np.median(payload)), greater_is_better=False)
        >>> median.function(np.arange(3), np.array([[1.0], [5.0], [2.0]]))
        2.0
    """

    name: str
    function: Callable[[Int64Array, Float64Array], float]
    greater_is_better: bool

    def columns(self, results: ExampleResults) -> Float64Array:
        """Return the rows' payload.

        Raises:
            ValueError: the table has no statistics of this name.
        """
        if self.name not in results.statistics:
            raise ValueError(
                f"statistics {self.name!r} are not among {sorted(results.statistics)}; give the metric's payload under "
                "that name."
            )
        return results.statistics[self.name]


def jackknife_difference(
    first: Column, second: Column, design: Design, depth: int, metric: OpaqueMetric
) -> PairedDifference:
    """Estimate how much worse ``first`` is from the first ``depth`` rows, leaving out one random group at a time.

    Var = (1 - f) (G - 1) / G sum_g (D_(g) - mean D)^2 over G groups of the paired difference D, f = depth / N.

    Args:
        first: column that holds the prefix.
        second: column that holds the prefix.
        design: the nested order; its strata must be read at equal rates.
        depth: rows of the prefix.
        metric: what is compared.
    """
    rows = design.order[:depth]
    a, b = first.values[rows], second.values[rows]
    sign = -1.0 if metric.greater_is_better else 1.0
    discordant = int(np.count_nonzero((a != b).any(axis=1)))
    if depth == design.size:
        order = np.arange(depth)
        exact = metric.function(order, first.values) - metric.function(order, second.values)
        return PairedDifference(sign * exact, 0.0, depth, discordant)
    value = sign * (metric.function(rows, a) - metric.function(rows, b))
    left_out = np.array([sign * _without(rows, a, b, group, metric) for group in range(GROUPS)])
    spread = float(((left_out - left_out.mean()) ** 2).sum())
    variance = (1 - depth / design.size) * (GROUPS - 1) / GROUPS * spread
    return PairedDifference(value, float(np.sqrt(variance)), depth, discordant, freedom=GROUPS - 1)


def _without(rows: Int64Array, a: Float64Array, b: Float64Array, group: int, metric: OpaqueMetric) -> float:
    # rows stand in random order inside their stratum, so every G-th one is a random group
    keep = np.arange(len(rows)) % GROUPS != group
    return metric.function(rows[keep], a[keep]) - metric.function(rows[keep], b[keep])
