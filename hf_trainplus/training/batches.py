"""Which rows an evaluation of PlusTrainer's own runs together, and the loaders that are kept for the next one."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch

from hf_trainplus import _upstream as upstream
from hf_trainplus.evaluation.batching import plan_batches
from hf_trainplus.evaluation.lengths import row_lengths
from hf_trainplus.evaluation.loading import PlannedLoader
from hf_trainplus.evaluation.memory_backoff import BatchLimit, is_out_of_memory, release_memory
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.streaming import StreamLoader
from hf_trainplus.evaluation.tasks import LoaderSettings
from hf_trainplus.evaluation.token_probe import probe_token_limit
from hf_trainplus.evaluation.windows import LoadedBatch, WindowSizes
from hf_trainplus.training.kept_loaders import KeptLoaders
from hf_trainplus.training.progress import EvaluationProgress
from hf_trainplus.training.source import EvaluationSource

if TYPE_CHECKING:
    from transformers import Trainer


@dataclass(frozen=True)
class _Read:
    dataset: Any
    loader: PlannedLoader | StreamLoader
    lengths: npt.NDArray[np.int64] | None


@dataclass(frozen=True)
class _Probed:
    tokens: int
    rows: int | None

    def holds_for(self, rows: int) -> bool:
        """Say whether the limit counts for so many rows: one that took in all rows says nothing of more."""
        return self.rows is None or rows <= self.rows


class BatchSource:
    """Makes and keeps one loader a dataset, so that workers are started once and reused over evaluations.

    Args:
        trainer: its arguments, collator and column rules count.
        ours: the classes whose methods are not somebody else's overrides.
    """

    def __init__(self, trainer: Trainer, *ours: type) -> None:
        self._trainer = trainer
        self._kept: KeptLoaders[_Read] = KeptLoaders(trainer, lambda made: made.loader.close(), *ours)
        self.limit = BatchLimit()
        self._probed: dict[str, _Probed] = {}

    def of(
        self,
        source: EvaluationSource,
        ranks: Ranks,
        *,
        rows_are_independent: bool,
        even_rows: bool = False,
        ids: npt.NDArray[np.int64] | None = None,
        stream_rows: int | None = None,
        probe: Callable[[Any], object] | None = None,
        progress: EvaluationProgress | None = None,
    ) -> Iterator[LoadedBatch]:
        """Return this rank's batches of the dataset: (positions, real, batch).

        Args:
            source: the dataset.
            ranks: the processes that share the rows.
            rows_are_independent: False keeps the trainer's own batches and order.
            even_rows: all ranks run equally many rows at a time, for a loss that may gather them.
            ids: positions of the rows to run; None for all.
            stream_rows: most rows to read of a stream; None for all.
            probe: runs the model on a collated batch, to measure how large a batch should be; None where ranks would
                have to run it together.
            progress: told of this rank's share where that is known.
        """
        kept = self._keep(source, ranks, stream_rows)
        size = self.limit.lowered(self._trainer.args.eval_batch_size)
        if ids is None and not isinstance(kept.loader, StreamLoader):
            ids = np.arange(len(kept.dataset))
        tokens = self._tokens_per_batch(source, kept, ranks, probe, ids) if rows_are_independent else None
        sizes = WindowSizes(
            batch_size=size, tokens_per_batch=tokens, keep_order=not rows_are_independent, even_rows=even_rows
        )
        if isinstance(kept.loader, StreamLoader):
            return kept.loader.run(sizes)
        ids = cast("npt.NDArray[np.int64]", ids)
        if rows_are_independent and kept.lengths is None and not even_rows:
            return kept.loader.run_windows(
                ids, sizes, rank=ranks.index, world_size=ranks.size, most=lambda value: max(ranks.gather(value))
            )
        lengths = kept.lengths[ids] if rows_are_independent and kept.lengths is not None else None
        plan = plan_batches(
            ids,
            lengths,
            batch_size=size,
            tokens_per_batch=tokens,
            rank=ranks.index,
            world_size=ranks.size,
            even_rows=even_rows,
        )
        source.batch_count = len(plan.batches)
        if progress is not None:
            progress.expect(plan, kept.lengths)
        return kept.loader.run(plan)

    def _tokens_per_batch(
        self,
        source: EvaluationSource,
        kept: _Read,
        ranks: Ranks,
        probe: Callable[[Any], object] | None,
        ids: npt.NDArray[np.int64] | None,
    ) -> int | None:
        """Return the limit of padded tokens of a batch; ``auto`` is measured once a dataset, by rank 0."""
        asked = getattr(self._trainer.args, "eval_tokens_per_batch", "auto")
        if asked != "auto":
            return None if asked is None else self.limit.lowered(int(asked))
        device = self._trainer.args.device
        if kept.lengths is None or probe is None or ids is None or not len(ids):
            # measured on one core: larger batches of a small model are slower, see token_probe
            return self.limit.lowered(512) if device.type == "cpu" else None
        key = f"{device.type}/{source.description}/{len(kept.lengths)}/{zlib.crc32(kept.lengths.tobytes()):08x}"
        known = self._probed.get(key)
        if known is None or not known.holds_for(len(ids)):
            mine = (
                self._measure(cast("PlannedLoader", kept.loader), kept.lengths, ids, probe, alone=ranks.size == 1)
                if not ranks.index
                else None
            )
            known = self._probed[key] = cast("_Probed", ranks.from_first(mine))
        return self.limit.lowered(known.tokens)

    @property
    def token_limits(self) -> dict[str, list[int | None]]:
        """What was measured, as plain values by dataset: a run that goes on with it makes the same batches."""
        return {name: [found.tokens, found.rows] for name, found in self._probed.items()}

    def take_limits(self, saved: Mapping[str, Sequence[Any]]) -> None:
        """Take what an earlier process has measured."""
        self._probed |= {name: _Probed(*found) for name, found in saved.items()}

    def _measure(
        self,
        loader: PlannedLoader,
        lengths: npt.NDArray[np.int64],
        ids: npt.NDArray[np.int64],
        probe: Callable[[Any], object],
        *,
        alone: bool,
    ) -> _Probed:
        """Probe with rows that the evaluation runs next, and hold them for it."""
        device = self._trainer.args.device

        def run(rows: npt.NDArray[np.int64]) -> None:
            probe(upstream.prepare_inputs(self._trainer, loader.fetch(ids[rows], hold=True)))
            if device.type == "cuda":
                torch.cuda.synchronize(device)

        try:
            chosen = probe_token_limit(lengths[ids], run, device)
        except Exception as error:
            # the other ranks wait for the answer; any other error comes again in the evaluation, where all hear of it
            if alone and not is_out_of_memory(error):
                raise
            chosen = None
        if chosen is None:
            release_memory()
            # rows one at a time: what still does not fit is passed on by the evaluation, on all ranks together
            return _Probed(1, 0)
        return _Probed(chosen.tokens_per_batch, len(ids) if chosen.reason == "largest" else None)

    def _keep(self, source: EvaluationSource, ranks: Ranks, stream_rows: int | None) -> _Read:
        settings = loader_settings(self._trainer)
        made_for = (ranks.index, ranks.size, stream_rows)
        return self._kept.get(source, settings, lambda: self._make(source, ranks, stream_rows), *made_for)

    def _make(self, source: EvaluationSource, ranks: Ranks, stream_rows: int | None) -> _Read:
        dataset, collator = upstream.dataset_and_collator(self._trainer, source.dataset, source.description)
        if not isinstance(dataset, torch.utils.data.IterableDataset):
            planned = PlannedLoader(dataset, collator, loader_settings(self._trainer))
            return _Read(source.dataset, planned, row_lengths(source.dataset))
        stream = stream_loader(self._trainer, dataset, collator, ranks, stream_rows)
        return _Read(source.dataset, stream, None)

    def fetch(self, source: EvaluationSource) -> Callable[[npt.NDArray[np.int64]], Any] | None:
        """Return what reads rows of the dataset again, or None for a stream, which cannot be read again."""
        if isinstance(source.dataset, torch.utils.data.IterableDataset):
            return None

        def read(rows: npt.NDArray[np.int64]) -> Any:
            # looked up when it is needed: the evaluation that asks may make the loader anew first
            kept = cast("_Read", self._kept.find(source))
            return cast("PlannedLoader", kept.loader).fetch(rows)

        return read

    def close(self) -> None:
        """Close every kept loader and its workers."""
        self._kept.close()


def loader_settings(trainer: Trainer) -> LoaderSettings:
    """Return how the trainer's arguments want rows to be read."""
    args = trainer.args
    return LoaderSettings(
        args.dataloader_num_workers,
        args.dataloader_pin_memory,
        args.dataloader_prefetch_factor,
        getattr(args, "dataloader_multiprocessing_context", None),
    )


def stream_loader(trainer: Trainer, stream: Any, collate: Any, ranks: Ranks, limit: int | None) -> StreamLoader:
    """Return a loader of a stream that shares its rows between ranks as the arguments want it."""
    dispatched = cast("Any", trainer.args.accelerator_config).dispatch_batches is not False
    return StreamLoader(
        stream,
        collate,
        loader_settings(trainer),
        limit=limit,
        rank=ranks.index,
        world_size=ranks.size,
        scatter=ranks.scatter if dispatched else None,
        most=lambda value: max(ranks.gather(value)),
    )
