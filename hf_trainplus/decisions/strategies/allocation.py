"""How many rows each stratum gets."""

from __future__ import annotations

import numpy as np

from hf_trainplus.results import Float64Array, Int64Array

ALLOCATIONS = ("proportional", "equal", "neyman")
_HALVINGS = 40
_FEWEST_ROWS = 4  # a variance needs rows to be seen
_LEAST_DEVIATION = 0.15  # of the largest: a stratum believed easy is still watched, so that forgetting is seen


def quotas(
    sizes: Int64Array, size: int, allocation: str = "proportional", deviation: Float64Array | None = None
) -> Float64Array:
    """Return the rows each stratum should get, before rounding.

    Args:
        sizes: (H,) rows in each stratum, >= 0.
        size: rows to draw in all, 0 to ``sizes.sum()``.
        allocation: ``"proportional"`` to the stratum's size; ``"equal"`` for every stratum; ``"neyman"``, proportional
            to size times deviation, which makes the error of the whole smallest. Strata that get less than one row
            share theirs by size, see ``pooled``.
        deviation: (H,) standard deviation expected in each stratum, for ``"neyman"``.

    Returns:
        (H,) quotas that add up to size, none above its stratum's size.

    Raises:
        ValueError: an unknown allocation, or ``"neyman"`` without deviations.

    Source:
        Neyman 1934; Cochran, Sampling Techniques, 5.5, strata that are drawn whole included (5.8).

    Example:
        >>> quotas(np.array([90, 10]), 10).tolist(), quotas(np.array([90, 2]), 10, "equal").tolist()
        ([9.0, 1.0], [8.0, 2.0])
    """
    if allocation not in ALLOCATIONS:
        raise ValueError(f"allocation is {allocation!r}; allowed are {', '.join(map(repr, ALLOCATIONS))}.")
    if allocation == "proportional":
        return np.asarray(size * sizes / max(int(sizes.sum()), 1), dtype=np.float64)
    if allocation == "equal":
        return _spread(np.ones(len(sizes)), np.zeros(len(sizes)), sizes, size)
    if deviation is None:
        raise ValueError("allocation='neyman' needs to know how much rows vary; give reference_loss=, one value a row.")
    expected = np.maximum(deviation, _LEAST_DEVIATION * float(deviation.max(initial=0.0)))
    pull = sizes.astype(np.float64) * (expected if expected.any() else 1.0)
    fewest = np.minimum(sizes, min(_FEWEST_ROWS, size // max(int((sizes > 0).sum()), 1)))
    return _spread(pull, fewest.astype(np.float64), sizes, size)


def _spread(pull: Float64Array, fewest: Float64Array, sizes: Int64Array, size: int) -> Float64Array:
    """Share ``size`` in proportion to ``pull``, between each stratum's fewest and its whole size.

    The share is clip(t * pull, fewest, sizes); its sum grows with t, so t is found by bisection and the last
    rounding error is put where there is room.
    """
    active = np.where(sizes > 0, pull, 0.0)

    def shares_at(rate: float) -> Float64Array:
        return np.minimum(np.maximum(rate * active, fewest), sizes)

    low, high = 0.0, 1.0
    while shares_at(high).sum() < size and high < 1e300:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if shares_at(middle).sum() < size else (low, middle)
    shares = shares_at(high)
    free = (shares > fewest) & (shares < sizes)
    if free.any():
        shares[free] *= (size - shares[~free].sum()) / shares[free].sum()
    return np.asarray(np.where(np.abs(shares - np.round(shares)) < 1e-9, np.round(shares), shares), dtype=np.float64)


def largest_remainder(quota: Float64Array, size: int) -> Int64Array:
    """Round quotas to whole rows that add up to size; the largest fractions are rounded up, the first on a tie.

    Args:
        quota: (H,) rows wanted, >= 0.
        size: sum of the result, within one row a stratum of the sum of the quotas' whole parts.

    Returns:
        (H,) rows, each under one row from its quota.

    Example:
        >>> largest_remainder(np.array([1.5, 2.2, 0.3]), 4).tolist()
        [2, 2, 0]
    """
    rows = np.floor(quota + 1e-9).astype(np.int64)
    left = size - int(rows.sum())
    fractions = quota - rows
    rows[np.argsort(-fractions, kind="stable")[:left]] += 1
    return rows


def pooled(quota: Float64Array, sizes: Int64Array) -> tuple[Int64Array, int]:
    """Choose the strata that must share one draw because alone they would get less than one row.

    A class that is never drawn would leave the estimate biased, and rounding alone can leave hundreds of rare classes
    out. So rare classes form one pool, which gets whole rows: as many as it is worth rounded down, or, when it is worth
    less than one, together with the smallest class that has room. Within the pool the share is proportional to size, so
    that with the proportional allocation each class stays within one row of its quota.

    Args:
        quota: (H,) rows wanted.
        sizes: (H,) rows in each stratum.

    Returns:
        The strata of the pool (empty when every stratum is worth a row) and the pool's number of rows.
    """
    rare = np.flatnonzero((quota < 1) & (sizes > 0))
    worth = float(quota[rare].sum())
    if not len(rare):
        return rare, 0
    if worth >= 1 - 1e-9:
        return rare, int(worth + 1e-9)
    roomy = np.flatnonzero((quota >= 1) & (quota < sizes))
    if not len(roomy):
        return rare, 0
    host = roomy[np.argmin(quota[roomy])]
    return np.append(rare, host), int(quota[host] + 1e-9) + 1
