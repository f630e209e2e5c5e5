"""The generation loop: continues the prompt of every row once, and keeps generated ids apart from all others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hf_trainplus.evaluation.generate_batch import GeneratedBatch, GenerationSettings, generate_batch
from hf_trainplus.evaluation.loop import EvaluationLeft
from hf_trainplus.evaluation.memory_backoff import BatchLimit, Split, run_with_backoff
from hf_trainplus.evaluation.metric_rows import MetricColumns
from hf_trainplus.evaluation.metrics.adapters import MetricReducer
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.rows import RowCollector
from hf_trainplus.evaluation.windows import LoadedBatch


@dataclass(frozen=True)
class GenerationOutput:
    """What one pass found, on every rank alike.

    Args:
        index: (n,) positions of the rows, ascending.
        batch: the rows' ids as numpy arrays in dataset order; None when nothing was collected.
        columns: what metrics that reduce a batch at a time found; None without such metrics.
        seconds: wall-clock seconds on this rank.
    """

    index: npt.NDArray[np.int64]
    batch: GeneratedBatch | None
    columns: MetricColumns | None
    seconds: float


@dataclass
class GenerationLoop:
    """One pass over rows that are generated for; it knows no Trainer.

    Ranks run equally many batches. A batch that does not fit in memory is cut and its rows run again.

    Args:
        model: the model itself, not its distributed wrapper.
        settings: how to generate.
        metrics: metrics that take generated ids a batch at a time; None for none.
        collector: keeps the generated ids; None to keep none.
        input_name: key of the inputs to keep beside them; None for none.
        on_batch: called after every batch with its number of real rows and of generated tokens.
        should_leave: asked before every batch, with one answer for all ranks; True leaves the evaluation.
        precision: makes the context that batches run in.
        limit: remembers how far batches had to be cut for lack of memory.
        split: cuts a batch that does not fit in memory.
        ranks: the processes that evaluate together.
        clock: seconds, monotonic.
    """

    model: Any
    settings: GenerationSettings
    metrics: MetricReducer | None = None
    collector: RowCollector | None = None
    input_name: str | None = None
    on_batch: Callable[[int, int], None] | None = None
    should_leave: Callable[[], bool] | None = None
    precision: Callable[[], AbstractContextManager[None]] = nullcontext
    limit: BatchLimit = field(default_factory=BatchLimit)
    split: Split | None = None
    ranks: Ranks = Ranks()
    clock: Callable[[], float] = time.monotonic

    def run(self, batches: Iterable[LoadedBatch]) -> GenerationOutput:
        """Generate for all rows.

        Args:
            batches: this rank's batches, equally many on every rank.

        Raises:
            EvaluationLeft: a stop was asked for.
            ValueError: see ``generate_batch``.
        """
        start, positions = self.clock(), [np.zeros(0, np.int64)]
        with ExitStack() as on_error, self.precision():
            if self.collector is not None:
                on_error.callback(self.collector.close)
            done = run_with_backoff(
                self._until_left(batches),
                self._run_batch,
                self.limit,
                split=self.split,
                agree=self.ranks.any if self.ranks.size > 1 else None,
            )
            for batch, found in done:
                self._keep(batch, found)
                positions.append(batch.positions[batch.real])
            on_error.pop_all()
        return self._finish(np.concatenate(positions), start)

    def _until_left(self, batches: Iterable[LoadedBatch]) -> Iterator[LoadedBatch]:
        for count, batch in enumerate(batches):
            if self.should_leave is not None and self.should_leave():
                raise EvaluationLeft(f"left after {count} batches of generation")
            yield batch

    def _run_batch(self, batch: LoadedBatch) -> GeneratedBatch:
        found = generate_batch(self.model, batch.inputs, self.settings, batch.positions.tolist())
        return found if self.input_name is None else found._replace(prompts=batch.inputs.get(self.input_name))

    def _keep(self, batch: LoadedBatch, found: GeneratedBatch) -> None:
        positions = batch.positions[batch.real]
        if self.metrics is not None:
            self.metrics.add(positions, batch.real, found.scored, found.references)
        if self.collector is not None:
            self.collector.add(positions, tuple(found), batch.real)
        if self.on_batch is not None:
            real = torch.as_tensor(batch.real, device=found.generated.device)
            self.on_batch(len(positions), int(found.generated[real].sum()))

    def _finish(self, positions: npt.NDArray[np.int64], start: float) -> GenerationOutput:
        kept = self.collector.finish(self.ranks) if self.collector is not None else None
        return GenerationOutput(
            index=np.sort(np.concatenate(self.ranks.gather(positions))),
            batch=None if kept is None else GeneratedBatch(*kept),
            columns=self.metrics.columns(self.ranks) if self.metrics is not None else None,
            seconds=self.clock() - start,
        )
