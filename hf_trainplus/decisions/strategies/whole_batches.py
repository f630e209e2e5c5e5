"""Whole batches drawn at random, for losses that only a batch has."""

from __future__ import annotations

from math import ceil

import numpy as np

from hf_trainplus.decisions.strategies.subset_value import Subset


def draw_batches(rows: int, size: int, batch_size: int, *, seed: int) -> Subset:
    """Draw batches of consecutive rows, as they are cut from the whole dataset.

    A loss that depends on batch mates (in-batch negatives) keeps its value only in its own batches. Such a subset has
    wider intervals than rows drawn one by one, since rows of a batch may be alike, and no strata.

    Args:
        rows: rows of the dataset, >= 1.
        size: rows wanted, 1 to ``rows``, rounded up to whole batches.
        batch_size: rows in a batch, >= 1; the last batch is shorter where they do not divide the rows.
        seed: seed of the draw.

    Returns:
        The subset; its design has the batches as clusters.

    Source:
        Cochran, Sampling Techniques, 9A: clusters drawn with equal chance, ratio to size.

    Example:
        >>> subset = draw_batches(10, 3, 4, seed=1)
        >>> subset.indices.tolist(), subset.method
        ([0, 1, 2, 3], '1 of 3 batches of 4 rows')
    """
    batches = ceil(rows / batch_size)
    wanted = min(batches, ceil(size / batch_size))
    drawn = np.sort(np.random.default_rng(seed).permutation(batches)[:wanted])
    indices = (drawn[:, None] * batch_size + np.arange(batch_size)).reshape(-1)
    indices = indices[indices < rows]
    count = len(indices)
    return Subset(
        indices,
        np.full(count, rows / count),
        np.zeros(count, np.int64),
        f"{wanted} of {batches} batches of {batch_size} rows",
        clusters=indices // batch_size,
        clusters_total=batches,
    )
