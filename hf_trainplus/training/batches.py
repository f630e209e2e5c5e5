"""Which rows an evaluation of PlusTrainer's own runs together, and the loaders that are kept for the next one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from hf_trainplus import _upstream as upstream
from hf_trainplus.evaluation.batching import plan_batches
from hf_trainplus.evaluation.lengths import row_lengths
from hf_trainplus.evaluation.loading import PlannedLoader
from hf_trainplus.evaluation.memory_backoff import BatchLimit
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.streaming import StreamLoader
from hf_trainplus.evaluation.tasks import LoaderSettings
from hf_trainplus.evaluation.windows import LoadedBatch, WindowSizes
from hf_trainplus.training.source import EvaluationSource

if TYPE_CHECKING:
    from transformers import Trainer

KEPT_LOADERS = 8


@dataclass(frozen=True)
class _Kept:
    dataset: Any
    loader: PlannedLoader | StreamLoader
    lengths: npt.NDArray[np.int64] | None


class BatchSource:
    """Makes and keeps one loader a dataset, so that workers are started once and reused over evaluations.

    Args:
        trainer: its arguments, collator and column rules count.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._kept: OrderedDict[tuple[int, str], _Kept] = OrderedDict()
        self.limit = BatchLimit()

    def of(
        self,
        source: EvaluationSource,
        ranks: Ranks,
        *,
        rows_are_independent: bool,
        ids: npt.NDArray[np.int64] | None = None,
    ) -> Iterator[LoadedBatch]:
        """Return this rank's batches of the dataset: (positions, real, batch).

        Args:
            source: the dataset.
            ranks: the processes that share the rows.
            rows_are_independent: False keeps the trainer's own batches and order.
            ids: positions of the rows to run; None for all.
        """
        kept = self._keep(source, ranks)
        size = self.limit.lowered(self._trainer.args.eval_batch_size)
        sizes = WindowSizes(batch_size=size, window_rows=None if rows_are_independent else size)
        if isinstance(kept.loader, StreamLoader):
            return kept.loader.run(sizes)
        if ids is None:
            ids = np.arange(len(kept.dataset))
        if rows_are_independent and kept.lengths is None:
            return kept.loader.run_windows(
                ids, sizes, rank=ranks.index, world_size=ranks.size, most=lambda value: max(ranks.gather(value))
            )
        lengths = kept.lengths[ids] if rows_are_independent and kept.lengths is not None else None
        plan = plan_batches(ids, lengths, batch_size=size, rank=ranks.index, world_size=ranks.size)
        source.batch_count = len(plan.batches)
        return kept.loader.run(plan)

    def _keep(self, source: EvaluationSource, ranks: Ranks) -> _Kept:
        key = (id(source.dataset), source.description)
        if key not in self._kept:
            # the dataset itself is kept too, so that its id cannot come to stand for another one
            self._kept[key] = self._make(source, ranks)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_LOADERS:
            self._kept.popitem(last=False)[1].loader.close()
        return self._kept[key]

    def _make(self, source: EvaluationSource, ranks: Ranks) -> _Kept:
        args = self._trainer.args
        dataset, collator = upstream.dataset_and_collator(self._trainer, source.dataset, source.description)
        settings = LoaderSettings(
            args.dataloader_num_workers,
            args.dataloader_pin_memory,
            args.dataloader_prefetch_factor,
            getattr(args, "dataloader_multiprocessing_context", None),
        )
        if not isinstance(dataset, torch.utils.data.IterableDataset):
            return _Kept(source.dataset, PlannedLoader(dataset, collator, settings), row_lengths(dataset))
        dispatched = args.accelerator_config.dispatch_batches is not False
        stream = StreamLoader(
            dataset,
            collator,
            settings,
            limit=_stream_limit(getattr(args, "eval_subset_size", None)),
            rank=ranks.index,
            world_size=ranks.size,
            scatter=ranks.scatter if dispatched else None,
            most=lambda value: max(ranks.gather(value)),
        )
        return _Kept(source.dataset, stream, None)

    def fetch(self, source: EvaluationSource) -> Callable[[npt.NDArray[np.int64]], Any] | None:
        """Return what reads rows of the dataset again, or None for a stream, which cannot be read again."""
        kept = self._kept.get((id(source.dataset), source.description))
        return kept.loader.fetch if kept is not None and isinstance(kept.loader, PlannedLoader) else None

    def close(self) -> None:
        """Close every kept loader and its workers."""
        for kept in self._kept.values():
            kept.loader.close()
        self._kept.clear()


def _stream_limit(size: float | None) -> int | None:
    """Return the number of rows to read of a stream; a fraction of an unknown length is none."""
    return int(size) if size is not None and size >= 1 else None
