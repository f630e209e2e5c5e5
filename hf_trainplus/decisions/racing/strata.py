"""Strata and the spread expected in each, from a fully known checkpoint and from what moved before.

A row with a small loss hardly moves, a row with a large one moves much; what earlier checkpoints did on the very row
says more still. Strata are cut so that each holds an equal share of the summed square root of the expected spread
(Dalenius and Hodges), and for a 0/1 score rows that the reference has wrong are kept apart from those it has right:
only the former can be gained, only the latter lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.metrics import AdditiveMetric, LossMetric, ScoreMetric
from hf_trainplus.decisions.racing.sums import total
from hf_trainplus.decisions.racing.volatility import Volatility
from hf_trainplus.results import Float64Array, Int64Array

_PRIOR_OBSERVATIONS = 2.0
_BIN_OBSERVATIONS = 20.0
_LEAST_IN_BIN = 25
_MOST_BINS = 60
_MOST_GROUPS = 12


@dataclass(frozen=True)
class Strata:
    """Strata of a design.

    Args:
        stratum: (N,) stratum of each row, 0..H-1.
        scale: (H,) expected standard deviation of a row's difference.
        gainable: (H,) True where the reference has the worst score, so that another checkpoint can only gain; None
            when the metric has no such rows.
    """

    stratum: Int64Array
    scale: Float64Array
    gainable: npt.NDArray[np.bool_] | None = None


def strata_of_labels(labels: Int64Array | None, size: int) -> Strata:
    """Return strata before any checkpoint is fully known: the given groups, or one stratum.

    More than 12 groups are too many for the first look to hold some of each, and make one stratum.

    Args:
        labels: (N,) any group of each row, or None.
        size: number of rows N.

    Raises:
        ValueError: not one label a row.
    """
    if labels is None:
        return Strata(np.zeros(size, dtype=np.int64), np.ones(1))
    if len(labels) != size:
        raise ValueError(f"{len(labels)} labels for {size} rows; give one label a row, or None.")
    groups, stratum = np.unique(labels, return_inverse=True)
    if len(groups) > _MOST_GROUPS:
        return Strata(np.zeros(size, dtype=np.int64), np.ones(1))
    return Strata(stratum.astype(np.int64), np.ones(len(groups)))


def strata_of_reference(reference: Column, past: Volatility, metric: AdditiveMetric, strata: int) -> Strata:
    """Return strata of expected movement against a fully known checkpoint.

    Args:
        reference: the fully known checkpoint.
        past: what rows did before.
        metric: what is raced.
        strata: number of strata, about.
    """
    base = metric.rows(reference.values, reference.means)
    expected = expected_squares(reference, base, past, metric)
    worst = worst_rows(reference, metric)
    groups = [np.flatnonzero(worst), np.flatnonzero(~worst)] if worst is not None else [np.arange(len(base))]
    share = np.sqrt(np.sqrt(expected))
    stratum = np.empty(len(base), dtype=np.int64)
    gainable: list[bool] = []
    for place, rows in enumerate(groups):
        if not len(rows):
            continue
        count = max(1, round(strata * float(share[rows].sum() / share.sum())))
        local = _cut(expected[rows], share[rows], count)
        stratum[rows] = local + len(gainable)
        gainable.extend([worst is not None and place == 0] * (int(local.max()) + 1))
    sums = np.bincount(stratum, weights=expected, minlength=len(gainable))
    scale = np.sqrt(sums / np.bincount(stratum, minlength=len(gainable)))
    return Strata(stratum, scale, np.asarray(gainable) if worst is not None else None)


def worst_rows(reference: Column, metric: AdditiveMetric) -> npt.NDArray[np.bool_] | None:
    """(N,) True where a score of two values is at its worst, so that only there it can gain; None for other metrics."""
    if not (isinstance(metric, ScoreMetric) and np.isfinite(metric.lower) and np.isfinite(metric.upper)):
        return None
    worst, best = metric.lower, metric.upper
    if not metric.greater_is_better:
        worst, best = best, worst
    at_worst = reference.values[:, 0] == worst
    return np.asarray(at_worst) if bool((at_worst | (reference.values[:, 0] == best)).all()) else None


def clue_of(reference: Column, metric: AdditiveMetric) -> Float64Array:
    """Return (N,) what rows are ordered by: the loss where it is known, else the row's part of the metric."""
    if np.isfinite(reference.loss).any():
        return np.nan_to_num(reference.loss, nan=0.0, posinf=0.0, neginf=0.0)
    return metric.rows(reference.values, reference.means)


def expected_squares(reference: Column, base: Float64Array, past: Volatility, metric: AdditiveMetric) -> Float64Array:
    """(N,) expected squared difference of each row to the reference, > 0.

    A guess from the reference's loss is scaled to what bins of similar rows did, and that to what the row itself did.
    """
    clue = clue_of(reference, metric)
    guess = _guess(clue, metric)
    bins = _bins_along(clue, worst_rows(reference, metric))
    number = int(bins.max()) + 1
    size = np.bincount(bins, minlength=number)
    per_bin = np.bincount(bins, weights=guess, minlength=number) / size
    moved = past.distance(base)
    observed = np.bincount(bins, weights=past.count, minlength=number).astype(np.float64)
    if observed.sum() > 0:
        level = float(moved.sum()) / max(total(observed, per_bin), 1e-300)
        seen = np.bincount(bins, weights=moved, minlength=number)
        per_bin = (seen + _BIN_OBSERVATIONS * level * per_bin) / (observed + _BIN_OBSERVATIONS)
    expected = (_PRIOR_OBSERVATIONS * per_bin[bins] + moved) / (_PRIOR_OBSERVATIONS + past.count)
    return np.asarray(expected + 1e-3 * expected.mean() + 1e-12 * guess.mean(), dtype=np.float64)


def _guess(clue: Float64Array, metric: AdditiveMetric) -> Float64Array:
    chance = np.exp(-np.maximum(clue, 0.0))
    if isinstance(metric, LossMetric):
        return np.asarray(np.maximum(1 - chance, 0.02) ** 2, dtype=np.float64)
    if isinstance(metric, ScoreMetric):
        return np.asarray(np.maximum(chance * (1 - chance), 1e-6), dtype=np.float64)
    return np.ones(len(clue))


def _bins_along(clue: Float64Array, worst: npt.NDArray[np.bool_] | None) -> Int64Array:
    number = max(1, min(_MOST_BINS, len(clue) // _LEAST_IN_BIN))
    keys = (clue,) if worst is None else (clue, worst)
    bins = np.empty(len(clue), dtype=np.int64)
    bins[np.lexsort(keys)] = np.arange(len(clue)) * number // len(clue)
    return bins


def _cut(expected: Float64Array, share: Float64Array, count: int) -> Int64Array:
    order = np.argsort(expected, kind="stable")
    cumulated = np.cumsum(share[order])
    local = np.empty(len(expected), dtype=np.int64)
    local[order] = np.minimum((cumulated / cumulated[-1] * count - 1e-9).astype(np.int64), count - 1)
    _, dense = np.unique(local, return_inverse=True)
    return dense.astype(np.int64)
