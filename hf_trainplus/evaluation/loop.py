"""The evaluation loop: runs every row once and fills the table of per-example results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from hf_trainplus.evaluation.accounting import CHECKED_BATCHES, BatchLosses, LossAccount, LossColumns, of_rows
from hf_trainplus.evaluation.bare_step import BareStep, measure_step
from hf_trainplus.evaluation.batch_list import BatchCollector
from hf_trainplus.evaluation.capture import OutputCapture
from hf_trainplus.evaluation.losses import ExampleLosses
from hf_trainplus.evaluation.memory_backoff import BatchLimit, Split, run_with_backoff, split_batch
from hf_trainplus.evaluation.metric_rows import MetricColumns
from hf_trainplus.evaluation.metrics.adapters import MetricReducer
from hf_trainplus.evaluation.outputs import main_predictions
from hf_trainplus.evaluation.packed_rows import PackedRows
from hf_trainplus.evaluation.rank_errors import RankErrors
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.rows import RowCollector
from hf_trainplus.evaluation.windows import LoadedBatch
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
        batch_of_row: (n,) batch in which each row was run, in dataset order, where only the batch's loss is known.
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
    batch_of_row: Array | None = None


class EvaluationLeft(Exception):  # noqa: N818 - not an error: the user asked for it
    """Raised between two batches when a stop was asked for; such an evaluation reports nothing.

    It is raised out of ``evaluate`` and ``predict`` on every rank when ``request_stop`` was called for them outside
    training. In a training run it never reaches the caller: the run is saved and ended in its place.

    Example:
        >>> raise EvaluationLeft("left after 2 batches")
        Traceback (most recent call last):
        hf_trainplus.evaluation.loop.EvaluationLeft: left after 2 batches
    """


class BatchMatesMatter(Exception):  # noqa: N818 - not an error: the rows are run again in other batches
    """Raised, on all ranks alike, when batches that are not the trainer's own have losses that depend on batch mates.

    What the evaluation has found is lost: only the trainer's own batches have the loss that the trainer reports.
    """


class _Outcome(NamedTuple):
    losses: BatchLosses
    predictions: Any
    collected: Any
    labels: Any
    packed: PackedRows | None = None


@dataclass
class EvaluationLoop:
    """One pass over rows that may arrive in any order.

    It knows no Trainer: what it runs, what it keeps and when it must leave are passed in.

    Args:
        step: runs the model on a batch.
        model: the model whose outputs are captured while ``step`` runs.
        account: takes the losses.
        row_losses: computes the losses of a batch's rows without predictions, in place of ``step``; None from it
            falls back to ``step``. It is given None by a rank that has failed, where ranks answer together.
        bare_step: runs the model without its labels once its loss need not be computed; None to compute it always.
        collector: keeps predictions, labels and inputs; None to keep none.
        metrics: metrics that reduce predictions a batch at a time; None for none.
        reduce_predictions: applied to the predictions of a batch first, for metrics and collector alike.
        reduce_collected: applied to what is left of them before it is collected.
        input_name: key of the inputs to keep, or None.
        wanted: further outputs to keep by name.
        on_batch: called after every batch with its number of real rows.
        should_leave: asked before every batch, with one answer for all ranks; True leaves the evaluation.
        precision: makes the context that batches run in.
        limit: remembers how far batches had to be cut for lack of memory.
        regrouped: whether the batches are not the trainer's own; they count only while losses are means over targets.
        split: cuts a batch that does not fit in memory.
        ranks: the processes that evaluate together.
        clock: seconds, monotonic.
    """

    step: PredictionStep
    model: torch.nn.Module
    account: LossAccount
    row_losses: Callable[[Any], ExampleLosses | None] | None = None
    bare_step: BareStep | None = None
    collector: RowCollector | BatchCollector | None = None
    metrics: MetricReducer | None = None
    reduce_predictions: Callable[[Any, Any], Any] | None = None
    reduce_collected: Callable[[Any, Any], Any] | None = None
    input_name: str | None = None
    wanted: Sequence[str] = ()
    on_batch: Callable[[int], None] | None = None
    should_leave: Callable[[], bool] | None = None
    precision: Callable[[], AbstractContextManager[None]] = nullcontext
    limit: BatchLimit = field(default_factory=BatchLimit)
    regrouped: bool = False
    split: Split | None = None
    ranks: Ranks = Ranks()
    clock: Callable[[], float] = time.monotonic

    def run(self, batches: Iterable[LoadedBatch]) -> LoopOutput:
        """Run all batches.

        Args:
            batches: (positions, real, inputs): positions of the rows in the dataset, and which of them are no fillers.

        Raises:
            EvaluationLeft: a stop was asked for.
            BatchMatesMatter: the batches are regrouped, and a batch's loss is not the mean over its targets.
        """
        with ExitStack() as on_error:
            if self.collector is not None:
                on_error.callback(self.collector.close)
            output = self._run(batches)
            on_error.pop_all()
        return output

    def _run(self, batches: Iterable[LoadedBatch]) -> LoopOutput:
        start, count, errors = self.clock(), 0, RankErrors(self.ranks)
        with torch.no_grad(), self.precision(), OutputCapture(self.model) as capture:
            done = run_with_backoff(
                self._until_left(errors.batches(batches)),
                lambda batch: self._run_batch(batch, capture, errors),
                self.limit,
                split=lambda batch, parts: [batch] * parts if errors.own else (self.split or split_batch)(batch, parts),
                agree=self.ranks.any if self.ranks.size > 1 else None,
            )
            for batch, outcome in done:
                count += 1
                with errors.kept():
                    self._keep(batch, outcome)
                    if self.on_batch is not None:
                        self.on_batch(int(batch.real.sum()))
                if self.ranks.size == 1 or count <= CHECKED_BATCHES:
                    self._check_mates()
        self._check_mates()
        errors.settle()
        return self._finish(count, start)

    def _check_mates(self) -> None:
        if self.regrouped and self.ranks.any(self.account.depends_on_mates):
            raise BatchMatesMatter("the loss of a batch is not the mean over its targets")

    def _until_left(self, batches: Iterable[LoadedBatch]) -> Iterator[LoadedBatch]:
        for count, batch in enumerate(batches):
            if self.should_leave is not None and self.should_leave():
                raise EvaluationLeft(f"left after {count} batches: a stop was asked for, nothing is reported")
            yield batch

    def _run_batch(self, batch: LoadedBatch, capture: OutputCapture, errors: RankErrors) -> _Outcome:
        if errors.own is not None and self.row_losses is not None:
            self.row_losses(None)  # the other ranks wait for this one's answer
        errors.raise_own()
        capture.take()
        inputs, rows = batch.inputs, len(batch.real)
        if self.row_losses is not None:
            found = self.row_losses(inputs)
            if found is not None:
                return _Outcome(of_rows(found, rows), None, None, None)
        measured = None
        if self.bare_step is not None:
            measured = self.bare_step.measured(self.step, inputs, rows, capture, self.account)
        if measured is None:
            measured = measure_step(self.step, inputs, rows, capture, self.account)
        losses, logits, labels, outputs = measured
        if self.collector is None and self.metrics is None:
            return _Outcome(losses, None, None, None)
        predictions = main_predictions(logits, outputs, rows=rows, wanted=self.wanted)
        if self.reduce_predictions is not None and predictions is not None:
            predictions = self.reduce_predictions(predictions, labels)
        collected = None
        if self.collector is not None:
            reduced = self.reduce_collected is not None and predictions is not None
            collected = self.reduce_collected(predictions, labels) if reduced else predictions  # type: ignore[misc]
        predictions = predictions if self.metrics is not None else None
        packed = PackedRows.of(inputs, rows)
        if packed is not None:
            predictions, collected, labels = packed.cut((predictions, collected, labels))
        return _Outcome(losses, predictions, collected, labels, packed)

    def _keep(self, batch: LoadedBatch, outcome: _Outcome) -> None:
        positions, real, inputs = batch
        self.account.add(positions, real, outcome.losses)
        kept = inputs.get(self.input_name) if self.input_name else None
        if outcome.packed is not None:
            positions, real = outcome.packed.places(positions, real)
            kept = outcome.packed.cut(kept)
        if self.metrics is not None:
            self.metrics.add(positions[real], real, outcome.predictions, outcome.labels)
        if self.collector is not None:
            self.collector.add(positions[real], (outcome.collected, outcome.labels, kept), real)

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
            batch_of_row=None if columns.per_row else columns.batch[np.argsort(columns.index, kind="stable")],
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
