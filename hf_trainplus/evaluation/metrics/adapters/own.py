"""Metrics of ``load_metric`` for the evaluation loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hf_trainplus.evaluation.metrics.adapters.contract import RowColumns, StreamingMetric, T
from hf_trainplus.evaluation.metrics.base import AdditiveMetric, Metric
from hf_trainplus.evaluation.metrics.ranking import RankMetric


class OwnMetric(StreamingMetric):
    """A ``Metric``, which is shared by its state.

    Args:
        metric: what ``load_metric`` returned.
    """

    sharing = "states"

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.form = metric.form
        self.primary = metric.primary
        self.greater_is_better = metric.greater_is_better

    def reduce(self, predictions: Any, labels: Any) -> Any:
        """Reduce to the metric's own form."""
        return self.metric.reduce(predictions)

    def reset(self) -> None:
        """Forget all rows."""
        self.metric.reset()

    def update(self, predictions: Any, labels: Any) -> None:
        """Take in a batch."""
        self.metric.update(predictions, labels)

    def compute(self) -> dict[str, Any]:
        """Return the metric's values."""
        return dict(self.metric.compute())

    def bring_together(self, gather: Callable[[T], list[T]]) -> None:
        """Replace the state by that of all ranks."""
        self.metric.merge_states(gather(self.metric.state_arrays()))  # type: ignore[arg-type]

    def update_rows(self, predictions: Any, labels: Any) -> RowColumns:
        """Take in a batch; the statistics of its rows are computed once for the sums and the table."""
        metric = self.metric
        if isinstance(metric, RankMetric):
            metric.update(predictions, labels)
            return RowColumns(metric.row_payload(predictions, labels))
        if not isinstance(metric, AdditiveMetric) or metric.statistics is None:
            return super().update_rows(predictions, labels)
        statistics = metric.example_statistics(predictions, labels)
        metric.add(statistics)
        return RowColumns(statistics, metric.scores_from_statistics(statistics))
