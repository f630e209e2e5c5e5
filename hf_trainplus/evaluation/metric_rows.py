"""Metrics that reduce a batch at a time, with what every row adds to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.evaluation.metrics.base import AdditiveMetric, Metric
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.rows import to_numpy

Array = npt.NDArray[Any]

MOST_ROW_BYTES = 1024
"""Largest statistics of one row that are kept for intervals and races, in bytes; wider ones are only summed."""


@dataclass(frozen=True)
class MetricColumns:
    """What metrics found over all ranks.

    Args:
        metrics: key -> value, as ``compute`` gives them.
        scores: primary key -> (n,) score of each row, for metrics that are means over rows.
        statistics: primary key -> (n, k) additive statistics of each row.
        index: (n,) positions of those rows.
    """

    metrics: dict[str, Any]
    scores: dict[str, Array]
    statistics: dict[str, Array]
    index: Array


@dataclass
class _Kept:
    metric: Metric
    statistics: list[Array] = field(default_factory=list)
    scores: list[Array] | None = field(default_factory=list)


class MetricRows:
    """Feeds batches to metrics and keeps each row's statistics and score, where the metric has them.

    Args:
        metrics: objects of ``load_metric``; their state is reset.
    """

    def __init__(self, metrics: Sequence[Metric]) -> None:
        for metric in metrics:
            metric.reset()
        self._kept = [_Kept(metric) for metric in metrics]
        self._positions: list[Array] = []

    def add(self, positions: Array, keep: Array, predictions: Any, labels: Any) -> None:
        """Add the rows of one batch.

        Args:
            positions: positions of the rows that count.
            keep: (rows,) which rows of the batch count.
            predictions: the model's output of the batch.
            labels: the labels of the batch.
        """
        references = _rows_of(labels, keep)
        self._positions.append(positions)
        for kept in self._kept:
            reduced = _rows_of(kept.metric.reduce(predictions), keep)
            self._add_to(kept, reduced, references)

    def _add_to(self, kept: _Kept, predictions: Any, references: Any) -> None:
        metric = kept.metric
        if not isinstance(metric, AdditiveMetric):
            metric.update(predictions, references)
            return
        statistics = metric.example_statistics(predictions, references)
        metric.add(statistics)
        if statistics.shape[1] * statistics.itemsize <= MOST_ROW_BYTES:
            kept.statistics.append(statistics)
        scores = metric.example_scores(predictions, references) if metric.per_example else None
        if scores is None:
            kept.scores = None
        elif kept.scores is not None:
            kept.scores.append(scores)

    def columns(self, ranks: Ranks) -> MetricColumns:
        """Gather all ranks' states and rows."""
        for kept in self._kept:
            kept.metric.merge_states(ranks.gather(kept.metric.state_arrays()))
        index = _joined(ranks, self._positions)
        scores, statistics, metrics = {}, {}, {}
        for kept in self._kept:
            key = kept.metric.primary
            metrics |= kept.metric.compute()
            rows = _joined(ranks, kept.statistics)
            if len(rows) == len(index) > 0:
                statistics[key] = rows
            rows = _joined(ranks, kept.scores or [])
            if len(rows) == len(index) > 0:
                scores[key] = rows
        return MetricColumns(metrics, scores, statistics, index)


def _rows_of(value: Any, keep: Array) -> Any:
    if isinstance(value, (tuple, list)) and not (isinstance(value, list) and len(value) == len(keep)):
        return type(value)(_rows_of(item, keep) for item in value)
    if isinstance(value, list):
        return [item for item, kept in zip(value, keep, strict=True) if kept]
    array = to_numpy(value)
    return array if bool(keep.all()) else array[keep]


def _joined(ranks: Ranks, parts: list[Array]) -> Array:
    gathered = [part for own in ranks.gather(parts) for part in own]
    return np.concatenate(gathered) if gathered else np.zeros(0)
