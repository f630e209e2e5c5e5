"""Feeds metrics from the evaluation loop, and brings the ranks together at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hf_trainplus.evaluation.metric_rows import MOST_ROW_BYTES, MetricColumns
from hf_trainplus.evaluation.metrics.adapters.contract import RowColumns, StreamingMetric
from hf_trainplus.evaluation.ranks import Ranks

Array = npt.NDArray[Any]
T = TypeVar("T")


@dataclass
class _Fed:
    """One metric, and what the rows of this rank have added to it."""

    metric: StreamingMetric
    statistics: list[Array] = field(default_factory=list)
    scores: list[Array] = field(default_factory=list)

    def keep(self, columns: RowColumns) -> None:
        wide = columns.statistics is not None and columns.statistics[:1].nbytes > MOST_ROW_BYTES
        if columns.statistics is not None and not wide:
            self.statistics.append(columns.statistics)
        if columns.scores is not None:
            self.scores.append(columns.scores)


class MetricReducer:
    """Takes the batches of one evaluation for metrics that need no more than one batch at a time.

    It runs no model and plans no batch. All ranks must make the same calls of ``add``: a metric that is shared by its
    rows gathers in each. A metric that fails on one rank of several is left out from there on, and raises on all ranks
    in ``columns``, since a rank that leaves the loop alone lets the others wait.

    Args:
        metrics: reset here; metrics of form ``losses`` are not among them.
        ranks: the processes that evaluate together.
    """

    def __init__(self, metrics: Sequence[StreamingMetric], ranks: Ranks | None = None) -> None:
        self._ranks = ranks or Ranks()
        self._fed = [_Fed(metric) for metric in metrics]
        self._positions: list[Array] = []
        self._seen = False
        self._error: Exception | None = None
        for metric in metrics:
            metric.reset()

    def add(self, positions: Array, keep: Array, predictions: Any, labels: Any) -> None:
        """Take in one batch.

        Args:
            positions: (kept rows,) their positions in the dataset.
            keep: (rows,) True for the rows of the batch that count.
            predictions: the model's output, on its device.
            labels: (rows, ...) labels, or None for a batch without.
        """
        if labels is not None and bool(keep.any()):
            self._positions.append(positions)
            self._seen = True
        for fed in self._fed:
            mine = self._guarded(_reduced, fed.metric, keep, predictions, labels)
            if fed.metric.sharing == "rows" and self._ranks.size > 1:
                for part in self._ranks.gather(_on_host(mine)):
                    self._guarded(_update, fed, part)
            else:
                self._guarded(_update, fed, mine)

    def _guarded(self, step: Callable[..., T], *arguments: Any) -> T | None:
        """Run a step of this rank; with several ranks its error waits for ``columns``."""
        if self._ranks.size == 1:
            return step(*arguments)
        if self._error is not None:
            return None
        try:
            return step(*arguments)
        except Exception as error:  # raised on all ranks in columns()
            self._error = error
            return None

    def columns(self, ranks: Ranks | None = None) -> MetricColumns:
        """Return the values over the rows of all ranks, and the rows' own columns, the same on every rank.

        Args:
            ranks: the processes, where they are not those of the constructor.

        Raises:
            RuntimeError: a metric failed on another rank; on that rank its own error is raised.
        """
        ranks = ranks or self._ranks
        self._agree(ranks)
        metrics: dict[str, Any] = {}
        if ranks.any(self._seen):
            metrics = self._values(ranks)
        index = _joined(ranks, self._positions)
        statistics: dict[str, Array] = {}
        scores: dict[str, Array] = {}
        for fed in self._fed:
            for found, parts in ((statistics, fed.statistics), (scores, fed.scores)):
                rows = _joined(ranks, parts)
                if fed.metric.primary is not None and len(rows) == len(index) > 0:
                    found[fed.metric.primary] = rows
        return MetricColumns(metrics, scores, statistics, index)

    def _values(self, ranks: Ranks) -> dict[str, Any]:
        metrics: dict[str, Any] = {}
        for fed in self._fed:
            if ranks.size > 1:
                fed.metric.bring_together(ranks.gather)
            metrics |= fed.metric.compute()
        return metrics

    def _agree(self, ranks: Ranks) -> None:
        reasons = ranks.gather(None if self._error is None else repr(self._error))
        if self._error is not None:
            raise self._error
        for rank, reason in enumerate(reasons):
            if reason is not None:
                raise RuntimeError(f"a metric failed on rank {rank}: {reason}")


def _reduced(metric: StreamingMetric, keep: Array, predictions: Any, labels: Any) -> tuple[Any, Any] | None:
    if labels is None:
        return None
    reduced = metric.reduce(predictions, labels)  # also for a batch of fillers, since it takes a metric to its device
    return (select_rows(reduced, keep), select_rows(labels, keep)) if keep.any() else None


def _update(fed: _Fed, rows: tuple[Any, Any] | None) -> None:
    if rows is not None:
        fed.keep(fed.metric.update_rows(*rows))


def select_rows(values: Any, keep: Array) -> Any:
    """Select the rows that count, in tensors, arrays, lists of rows, and tuples and mappings of these."""
    if values is None or bool(keep.all()):
        return values
    if isinstance(values, Mapping):
        return {key: select_rows(value, keep) for key, value in values.items()}
    if isinstance(values, tuple):
        return tuple(select_rows(value, keep) for value in values)
    if isinstance(values, list):
        return [value for value, kept in zip(values, keep, strict=True) if kept]
    return values[np.nonzero(keep)[0].tolist()]


def _on_host(values: Any) -> Any:
    if isinstance(values, tuple):
        return tuple(_on_host(value) for value in values)
    return values.detach().cpu() if hasattr(values, "detach") else values


def _joined(ranks: Ranks, parts: list[Array]) -> Array:
    gathered = [part for own in ranks.gather(parts) for part in own]
    return np.concatenate(gathered) if gathered else np.zeros(0)
