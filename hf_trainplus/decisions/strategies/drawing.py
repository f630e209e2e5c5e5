"""Draw rows within strata: how many each class gives, and which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.strategies.allocation import largest_remainder, pooled, quotas
from hf_trainplus.decisions.strategies.selection import random_rows
from hf_trainplus.decisions.strategies.subset_value import Subset
from hf_trainplus.results import Float64Array, Int64Array


@dataclass(frozen=True)
class RowPlan:
    """How many rows each class gives, what each of them weighs, and in which stratum it counts.

    Args:
        counts: (H,) rows to draw from each class.
        weights: (H,) rows of the dataset that each drawn row stands for.
        strata: (H,) stratum of each class; rare classes that share a draw are one stratum, H.
    """

    counts: Int64Array
    weights: Float64Array
    strata: Int64Array


def plan_rows(
    sizes: Int64Array,
    size: int,
    generator: np.random.Generator,
    *,
    allocation: str = "proportional",
    deviation: Float64Array | None = None,
) -> RowPlan:
    """Decide how many rows each class gives.

    Args:
        sizes: (H,) rows in each class.
        size: rows to draw, 1 to ``sizes.sum()``.
        generator: source of chance; it decides which rare classes are drawn.
        allocation: see ``allocation.quotas``.
        deviation: (H,) standard deviation expected in each class, for ``"neyman"``.

    Returns:
        The plan; its counts add up to size, and the weights of the rows drawn to ``sizes.sum()``.

    Example:
        >>> plan = plan_rows(np.array([60, 37, 2, 1]), 10, np.random.default_rng(0))
        >>> plan.counts.tolist(), plan.strata.tolist(), float((plan.counts * plan.weights).sum().round(6))
        ([6, 4, 0, 0], [0, 4, 4, 4], 100.0)
    """
    quota = quotas(sizes, size, allocation, deviation)
    pool, pool_rows = pooled(quota, sizes)
    alone = np.ones(len(sizes), bool)
    alone[pool] = False
    counts = np.zeros(len(sizes), np.int64)
    counts[alone] = largest_remainder(quota[alone], size - pool_rows)
    weights = sizes / np.maximum(counts, 1)
    strata = np.arange(len(sizes), dtype=np.int64)
    if pool_rows:
        # by size whatever the allocation: unequal weights of classes that are now there, now not, would have to be
        # scaled to add up, and a scaled estimate is biased
        counts[pool] = _systematic(sizes[pool], pool_rows, generator)
        weights[pool] = sizes[pool].sum() / pool_rows
        strata[pool] = len(sizes)
    return RowPlan(counts, weights, strata)


def draw_strata(
    codes: npt.NDArray[Any],
    size: int,
    *,
    seed: int,
    method: str,
    allocation: str = "proportional",
    deviation: Float64Array | None = None,
) -> Subset:
    """Draw ``size`` rows, so many from each stratum.

    Args:
        codes: (n,) class of each row, 0 to H - 1; small unsigned integers are fastest.
        size: rows to draw, 1 to n.
        seed: seed of the draw.
        method: words for the subset's log.
        allocation: see ``allocation.quotas``.
        deviation: (H,) standard deviation expected in each class, for ``"neyman"``.

    Returns:
        The subset; a stratum's weights add up to its size.
    """
    sizes = np.bincount(codes, minlength=0 if deviation is None else len(deviation)).astype(np.int64)
    generator = np.random.default_rng(seed)
    plan = plan_rows(sizes, size, generator, allocation=allocation, deviation=deviation)
    rows = np.flatnonzero(random_rows(codes, sizes, plan.counts, generator))
    drawn = codes[rows]
    return Subset(rows, plan.weights[drawn], plan.strata[drawn], method)


def _systematic(sizes: Int64Array, count: int, generator: np.random.Generator) -> Int64Array:
    """Share ``count`` rows among classes in proportion to their sizes, each rounded up or down by chance.

    The marks stand at even steps through the running sum of the sizes, from a random start.
    """
    ends = np.cumsum(sizes)
    marks = (np.arange(count) + generator.random()) * (float(ends[-1]) / count)
    hit = np.minimum(np.searchsorted(ends, marks, side="right"), len(sizes) - 1)
    return np.bincount(hit, minlength=len(sizes)).astype(np.int64)
