"""Strata and their expected spread, predicted from checkpoints that are fully known.

Where the loss of the reference is small a row hardly moves, where it is large it moves much: strata are quantiles of
the reference's loss, and the spread in each is what other fully known checkpoints showed there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.metrics import LossMetric, RaceMetric, ScoreMetric
from hf_trainplus.results import Float64Array, Int64Array


def strata_of_labels(labels: Int64Array | None, size: int) -> tuple[Int64Array, Float64Array]:
    """Return strata before any checkpoint is fully known: the given groups, or one stratum.

    Args:
        labels: (N,) any group of each row, or None.
        size: number of rows N.

    Returns:
        ``(stratum, scale)``: (N,) stratum of each row and (H,) equal scales.
    """
    if labels is None:
        return np.zeros(size, dtype=np.int64), np.ones(1)
    _, stratum = np.unique(labels, return_inverse=True)
    return stratum.astype(np.int64), np.ones(int(stratum.max()) + 1)


def strata_of_reference(
    reference: Column, others: Sequence[Column], metric: RaceMetric, strata: int
) -> tuple[Int64Array, Float64Array]:
    """Return quantile strata of the reference's loss and the spread expected in each.

    Args:
        reference: fully known column.
        others: fully known columns of other checkpoints; without any, the spread is guessed from the loss alone.
        metric: what is raced.
        strata: number of strata H.

    Returns:
        ``(stratum, scale)``: (N,) stratum of each row and (H,) expected standard deviation of a row's difference.
    """
    clue = clue_of(reference, metric)
    size = len(clue)
    used = max(1, min(strata, size // 4))
    stratum = np.empty(size, dtype=np.int64)
    stratum[np.argsort(clue, kind="stable")] = np.arange(size) * used // size
    squares = _expected_squares(reference, others, metric, clue)
    sums = np.bincount(stratum, weights=squares, minlength=used)
    return stratum, np.sqrt(sums / np.bincount(stratum, minlength=used))


def clue_of(reference: Column, metric: RaceMetric) -> Float64Array:
    """Return (N,) what rows are ordered by: the loss where it is known, else the linearised score."""
    if np.isfinite(reference.loss).any():
        return np.nan_to_num(reference.loss, nan=0.0, posinf=0.0, neginf=0.0)
    return reference.values @ metric.gradient(reference.means)


def _expected_squares(
    reference: Column, others: Sequence[Column], metric: RaceMetric, clue: Float64Array
) -> Float64Array:
    if others:
        base = reference.values @ metric.gradient(reference.means)
        moves = [(other.values @ metric.gradient(other.means) - base) ** 2 for other in others]
        return np.asarray(np.mean(moves, axis=0), dtype=np.float64)
    chance = np.exp(-np.maximum(clue, 0.0))
    if isinstance(metric, LossMetric):
        return np.asarray(np.maximum(1 - chance, 0.02) ** 2, dtype=np.float64)
    if isinstance(metric, ScoreMetric):
        return np.asarray(chance * (1 - chance), dtype=np.float64)
    return np.ones(len(clue))
