"""The level of one checkpoint's metric: for logs and plateau schedulers, never for choosing the best."""

from __future__ import annotations

import numpy as np

from hf_trainplus.decisions.racing.judge import difference_of
from hf_trainplus.decisions.racing.metrics import RaceMetric
from hf_trainplus.decisions.racing.paired import stratified_variance
from hf_trainplus.decisions.racing.state import Candidate, RaceState


def level_of(state: RaceState, metric: RaceMetric, candidate: Candidate) -> tuple[float, float] | None:
    """Return ``(value, standard error over the unread rows)``; None when a row is not finite.

    Where a fully known checkpoint exists, the level is its exact level plus the paired difference to it.

    Args:
        state: holds the rows.
        metric: what is measured.
        candidate: the checkpoint and the depth to which it was read.
    """
    column = state.columns[candidate.checkpoint]
    if column.nonfinite:
        return None
    if column.full:
        return metric.value(column.means), 0.0
    if state.references:
        known = Candidate(state.references[-1], 0.0, state.design.size)
        found = difference_of(state, metric, known, candidate)
        sign = -1.0 if metric.greater_is_better else 1.0
        return metric.value(state.columns[known.checkpoint].means) + sign * found.value, found.se
    design, depth = state.design, candidate.depth
    rows, stratum, counts = design.order[:depth], design.ordered_stratum[:depth], design.counts(depth)
    weight = (design.sizes / design.size / np.maximum(counts, 1))[stratum]
    means = weight @ column.values[rows]
    variance = stratified_variance(column.values[rows] @ metric.gradient(means), stratum, counts, design)
    return metric.value(means), float(np.sqrt(variance))
