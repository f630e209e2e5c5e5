"""Interval of any metric function at all, by leaving out groups of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import cast

import numpy as np

from hf_trainplus.decisions.estimators.assembly import linearized_estimate, resolve_design, without_interval
from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.sampling_error import SamplingError
from hf_trainplus.decisions.estimators.uncertainty import Estimate
from hf_trainplus.decisions.estimators.variance import Variance
from hf_trainplus.results import Float64Array, Int64Array

_MOST_UNEQUAL = 0.1  # coefficient of variation of the weights up to which a metric without weights is nearly unbiased


def jackknife_intervals(
    compute: Callable[..., Mapping[str, float]],
    n: int,
    *,
    groups: int = 20,
    n_total: int | None = None,
    design: SampleDesign | None = None,
    confidence: float = 0.95,
    weighted: bool = False,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Interval of every value that a metric function returns, by the delete-a-group jackknife.

    It calls the function ``groups`` + 1 times. It does not fit a metric that depends on the order of rows, nor one that
    jumps when a few rows change; a sample's value is the metric of the sample, and carries its bias. For the difference
    of two checkpoints, return the difference: pairing then counts.

    Args:
        compute: (m,) int64 row positions -> name -> value; with ``weighted``, positions and (m,) weights.
        n: rows that there are, positions 0 to n - 1.
        groups: groups to leave out, 2 to n.
        n_total: rows in the full set when the n rows were drawn at random from it; None when they are the set.
        design: weights, strata and clusters of the rows, in place of n_total; clusters are left out whole.
        confidence: level in (0, 1).
        weighted: True when ``compute`` takes weights; needed for samples of unequal weights.
        seed: seed of the grouping.

    Returns:
        name -> estimate, with ``groups`` - 1 degrees of freedom. A stratified sample has no error for the population:
        its groups show no variance between the strata.

    Raises:
        ValueError: too many or too few groups, or unequal weights that ``compute`` does not take.

    Source:
        Var = (1 - f) (G - 1) / G sum (t_(g) - mean)^2; Kott 2001, J. Official Statistics 17.

    Example:
        >>> values = np.arange(40.0)
        >>> found = jackknife_intervals(lambda rows: {"mean": values[rows].mean()}, 40)
        >>> found["mean"].value, round(found["mean"].population_standard_error, 2)
        (19.5, 1.83)
    """
    used = resolve_design(n, n_total, design)
    _check(used, groups, weighted)
    call = _caller(compute, used, weighted)
    whole = call(np.arange(n, dtype=np.int64))
    group = _groups(used, groups, np.random.default_rng(seed))
    left_out = [call(np.flatnonzero(group != left)) for left in range(groups)]
    found = {}
    for name, value in whole.items():
        replicates = np.array([result.get(name, math.nan) for result in left_out], dtype=np.float64)
        found[name] = _estimate(float(value), replicates, used, confidence)
    return found


def jackknife_interval(
    compute: Callable[..., float],
    n: int,
    *,
    groups: int = 20,
    n_total: int | None = None,
    design: SampleDesign | None = None,
    confidence: float = 0.95,
    weighted: bool = False,
    seed: int = 0,
) -> Estimate:
    """Interval of a metric function that returns one number; see ``jackknife_intervals`` for arguments and limits.

    Example:
        >>> jackknife_interval(lambda rows: float(len(rows) > 0), 40).value
        1.0
    """

    def named(*arguments: object) -> Mapping[str, float]:
        return {"value": compute(*arguments)}

    return jackknife_intervals(
        named,
        n,
        groups=groups,
        n_total=n_total,
        design=design,
        confidence=confidence,
        weighted=weighted,
        seed=seed,
    )["value"]


def _check(design: SampleDesign, groups: int, weighted: bool) -> None:
    units = design.n if design.clusters is None else len(np.unique(design.clusters))
    if not 2 <= groups <= units:
        raise ValueError(f"groups is {groups}; allowed are 2 to {units}, the number of rows or clusters to group.")
    unequal = float(design.weights.std() / design.weights.mean())
    if not weighted and unequal > _MOST_UNEQUAL:
        raise ValueError(
            f"the weights vary by {unequal:.0%} and the metric takes none; draw the subset with "
            "allocation='proportional', or pass weighted=True and a function of (rows, weights)."
        )


def _caller(
    compute: Callable[..., Mapping[str, float]], design: SampleDesign, weighted: bool
) -> Callable[[Int64Array], Mapping[str, float]]:
    def call(rows: Int64Array) -> Mapping[str, float]:
        return compute(rows, design.weights[rows]) if weighted else compute(rows)

    return call


def _groups(design: SampleDesign, groups: int, generator: np.random.Generator) -> Int64Array:
    """Group of each row: at random within strata, each stratum spread evenly; clusters stay together."""
    if design.clusters is not None:
        clusters = cast("Int64Array", design.clusters)
        of_cluster = generator.permutation(int(clusters.max()) + 1) % groups
        return np.asarray(of_cluster[clusters], dtype=np.int64)
    order = np.lexsort((generator.random(design.n), design.codes))
    group = np.empty(design.n, np.int64)
    group[order] = np.arange(design.n) % groups
    return group


def _estimate(value: float, replicates: Float64Array, design: SampleDesign, confidence: float) -> Estimate:
    if not math.isfinite(value) or not bool(np.isfinite(replicates).all()):
        return without_interval(value, design, confidence, "non-finite")
    groups = len(replicates)
    variance = (groups - 1) / groups * float(((replicates - replicates.mean()) ** 2).sum())
    population = SamplingError(variance, groups - 1.0)
    unseen = 1.0 if design.n_total is None else 1 - design.n / design.n_total
    of_set = SamplingError.none() if design.exact else SamplingError(variance * unseen, groups - 1.0)
    known = design.exact or len(design.counts) == 1
    both = Variance(of_set, population if known else SamplingError.unknown())
    return linearized_estimate(value, both, design, confidence, method="jackknife")
