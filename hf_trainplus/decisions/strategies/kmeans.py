"""k-means in numpy: clusters of rows to be used as strata."""

from __future__ import annotations

import numpy as np

from hf_trainplus.results import Float64Array, Int64Array

_FIT_ROWS = 20_000
_ITERATIONS = 25
_TRIES = 4
_CHUNK = 65_536


def kmeans(features: Float64Array, clusters: int, *, seed: int) -> Int64Array:
    """Group rows with alike features.

    It finds a good grouping, not the best one: as strata, any grouping is valid.

    Args:
        features: (n, d) finite values; columns are scaled to unit variance first.
        clusters: number of clusters, >= 1.
        seed: seed of the start.

    Returns:
        (n,) cluster of each row, 0 to clusters - 1; some may be empty.

    Source:
        Lloyd's iterations from greedy k-means++ (Arthur and Vassilvitskii 2007), fitted on at most 20,000 rows.

    Example:
        >>> kmeans(np.array([[0.0], [0.1], [9.0], [9.1]]), 2, seed=0).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
        True
    """
    deviation = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    generator = np.random.default_rng(seed)
    fitted = scaled[generator.permutation(len(scaled))[:_FIT_ROWS]]
    centres = _spread_centres(fitted, min(clusters, len(fitted)), generator)
    for _ in range(_ITERATIONS):
        nearest = _nearest(fitted, centres)
        moved = _means(fitted, nearest, centres)
        if np.allclose(moved, centres):
            break
        centres = moved
    return np.concatenate([_nearest(scaled[at : at + _CHUNK], centres) for at in range(0, len(scaled), _CHUNK)])


def _spread_centres(rows: Float64Array, clusters: int, generator: np.random.Generator) -> Float64Array:
    """Start from rows far apart: each next centre is the best of a few drawn by their squared distance."""
    centres = [rows[int(generator.integers(len(rows)))]]
    distance = ((rows - centres[0]) ** 2).sum(axis=1)
    for _ in range(clusters - 1):
        reach = np.cumsum(distance)
        if reach[-1] == 0:
            break
        tries = np.searchsorted(reach, generator.random(_TRIES) * reach[-1])
        nearer = [np.minimum(distance, ((rows - rows[at]) ** 2).sum(axis=1)) for at in np.minimum(tries, len(rows) - 1)]
        best = int(np.argmin([left.sum() for left in nearer]))
        centres.append(rows[min(int(tries[best]), len(rows) - 1)])
        distance = nearer[best]
    return np.stack(centres)


def _nearest(rows: Float64Array, centres: Float64Array) -> Int64Array:
    # |x|^2 is the same for all centres, so that the inner product decides
    return np.asarray(((centres * centres).sum(axis=1) - 2 * rows @ centres.T).argmin(axis=1), dtype=np.int64)


def _means(rows: Float64Array, nearest: Int64Array, centres: Float64Array) -> Float64Array:
    counts = np.bincount(nearest, minlength=len(centres))
    moved = centres.copy()
    present = np.flatnonzero(counts)
    starts = (np.cumsum(counts) - counts)[present]
    sums = np.add.reduceat(rows[np.argsort(nearest, kind="stable")], starts, axis=0)
    moved[present] = sums / counts[present, None]
    return moved
