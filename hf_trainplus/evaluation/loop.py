"""The evaluation loop: runs every row once and fills the table of per-example results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from hf_trainplus.evaluation.accounting import LossAccount, LossColumns
from hf_trainplus.evaluation.capture import OutputCapture
from hf_trainplus.evaluation.metric_rows import MetricColumns, MetricRows
from hf_trainplus.evaluation.outputs import main_predictions
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.rows import RowCollector
from hf_trainplus.results import ExampleResults

Array = npt.NDArray[Any]


class PredictionStep(Protocol):
    """Runs the model on one batch, as ``Trainer.prediction_step`` does."""

    def __call__(self, inputs: Any) -> tuple[torch.Tensor | None, Any, Any]:
        """Return (loss, logits, labels), each of which may be None."""


@dataclass(frozen=True)
class LoopOutput:
    """What one evaluation found.

    Args:
        results: one row an example, in dataset order.
        predictions: what was kept of the predictions, in dataset order; None when nothing was asked for.
        labels: the labels of the same rows, or None.
        inputs: the main input of the same rows, or None.
        per_row: whether the losses are those of the rows themselves (see ``LossAccount``).
        has_loss: whether there was a loss at all.
        batches: batches run on this rank.
        seconds: wall-clock seconds on this rank.
        metrics: what metrics that reduce a batch at a time found.
    """

    results: ExampleResults
    predictions: Any
    labels: Any
    inputs: Any
    per_row: bool
    has_loss: bool
    batches: int
    seconds: float
    metrics: Mapping[str, Any] = field(default_factory=dict)


class EvaluationLeft(Exception):  # noqa: N818 - not an error: the user asked for it
    """Raised between two batches when a stop was asked for; such an evaluation reports nothing."""


@dataclass
class EvaluationLoop:
    """One pass over rows that may arrive in any order.

    It knows no Trainer: what it runs, what it keeps and when it must leave are passed in.

    Args:
        step: runs the model on a batch.
        model: the model whose outputs are captured while ``step`` runs.
        account: takes the losses.
        collector: keeps predictions, labels and inputs; None to keep none.
        metrics: metrics that reduce predictions a batch at a time; None for none.
        reduce_predictions: applied to the predictions of a batch before they are kept.
        input_name: key of the inputs to keep, or None.
        wanted: further outputs to keep by name.
        on_batch: called after every batch.
        should_leave: asked before every batch, with one answer for all ranks; True leaves the evaluation.
        clock: seconds, monotonic.
    """

    step: PredictionStep
    model: torch.nn.Module
    account: LossAccount
    collector: RowCollector | None = None
    metrics: MetricRows | None = None
    reduce_predictions: Callable[[Any, Any], Any] | None = None
    input_name: str | None = None
    wanted: Sequence[str] = ()
    on_batch: Callable[[], None] | None = None
    should_leave: Callable[[], bool] | None = None
    ranks: Ranks = Ranks()
    clock: Callable[[], float] = time.monotonic

    def run(self, batches: Iterable[tuple[Array, Array, Any]]) -> LoopOutput:
        """Run all batches.

        Args:
            batches: (positions, real, batch): positions of the rows in the dataset, and which of them are no fillers.

        Raises:
            EvaluationLeft: a stop was asked for.
        """
        with ExitStack() as on_error:
            if self.collector is not None:
                on_error.callback(self.collector.close)
            output = self._run(batches)
            on_error.pop_all()
        return output

    def _run(self, batches: Iterable[tuple[Array, Array, Any]]) -> LoopOutput:
        start, count = self.clock(), 0
        with torch.no_grad(), OutputCapture(self.model) as capture:
            for positions, real, batch in batches:
                if self.should_leave is not None and self.should_leave():
                    raise EvaluationLeft(f"left after {count} batches")
                self._run_batch(positions, real, batch, capture)
                count += 1
                if self.on_batch is not None:
                    self.on_batch()
        return self._finish(count, start)

    def _run_batch(self, positions: Array, real: Array, batch: Any, capture: OutputCapture) -> None:
        loss, logits, labels = self.step(dict(batch) if isinstance(batch, dict) else batch)
        outputs = capture.take()
        self.account.add(positions, real, loss, outputs, batch)
        if self.collector is None and self.metrics is None:
            return
        predictions = main_predictions(logits, outputs, rows=len(real), wanted=self.wanted)
        if self.reduce_predictions is not None and predictions is not None:
            predictions = self.reduce_predictions(predictions, labels)
        if self.metrics is not None and predictions is not None and labels is not None:
            self.metrics.add(positions[real], real, predictions, labels)
        if self.collector is not None:
            inputs = batch.get(self.input_name) if self.input_name else None
            self.collector.add(positions[real], (predictions, labels, inputs), real)

    def _finish(self, count: int, start: float) -> LoopOutput:
        columns = self.account.columns(self.ranks)
        kept = self.collector.finish(self.ranks) if self.collector is not None else None
        predictions, labels, inputs = kept if kept is not None else (None, None, None)
        found = self.metrics.columns(self.ranks) if self.metrics is not None else None
        return LoopOutput(
            results=_table(columns, found),
            predictions=predictions,
            labels=labels,
            inputs=inputs,
            per_row=columns.per_row,
            has_loss=columns.has_loss,
            batches=count,
            seconds=self.clock() - start,
            metrics=found.metrics if found is not None else {},
        )


def _table(columns: LossColumns, found: MetricColumns | None) -> ExampleResults:
    order = np.argsort(columns.index, kind="stable")
    scores: dict[str, Array] = {}
    statistics: dict[str, Array] = {}
    if found is not None and len(found.index) == len(order):
        by_row = np.argsort(found.index, kind="stable")
        scores = {key: value[by_row] for key, value in found.scores.items()}
        statistics = {key: value[by_row] for key, value in found.statistics.items()}
    return ExampleResults(
        columns.index[order],
        columns.loss_sum[order],
        columns.target_count[order],
        scores=scores,
        statistics=statistics,
    )
