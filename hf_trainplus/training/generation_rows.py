"""The rows that a trainer's evaluation generates for, and the loaders that are kept for the next time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import IterableDataset

from hf_trainplus import _upstream as upstream
from hf_trainplus.decisions.subset import Subset, representative_subset
from hf_trainplus.evaluation.loading import PlannedLoader, StreamLoader
from hf_trainplus.evaluation.memory_backoff import BatchLimit
from hf_trainplus.evaluation.metrics.adapters.reducer import select_rows
from hf_trainplus.evaluation.packing import split_inputs
from hf_trainplus.evaluation.prompt_rows import PromptCollator, PromptRows
from hf_trainplus.evaluation.prompts import PROMPT_COLUMN
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.windows import LoadedBatch, WindowSizes
from hf_trainplus.training.batches import loader_settings, stream_loader
from hf_trainplus.training.kept_loaders import KeptLoaders
from hf_trainplus.training.source import EvaluationSource

if TYPE_CHECKING:
    from transformers import Trainer


def drawn_rows(dataset: Any, size: float | None, seed: int) -> Subset | None:
    """Draw the rows that are generated for, the same for the same seed; None for all rows.

    Args:
        dataset: its length counts.
        size: rows, 1 or more, or a fraction; None and 1.0 for all.
        seed: the run's seed.

    Raises:
        ValueError: a fraction of a stream.

    Example:
        >>> len(drawn_rows(range(40), 0.25, seed=0)), drawn_rows(range(40), 100, seed=0) is None
        (10, True)
    """
    if size is None:
        return None
    if not hasattr(dataset, "__len__"):
        if isinstance(size, float) and size <= 1:
            raise ValueError(
                f"generation_eval_size={size} is a fraction and the dataset is a stream, whose length is not known; "
                "give a number of rows, e.g. generation_eval_size=200."
            )
        return None
    fraction = isinstance(size, float) and size <= 1
    if size == 1 if fraction else size >= len(dataset):
        return None
    return representative_subset(range(len(dataset)), size if fraction else int(size), strategy="random", seed=seed)


class GenerationRows:
    """Makes and keeps one loader a dataset; it reads prompts that a dataset brings in a column of its own.

    Args:
        trainer: its arguments, collator and column rules count.
        ours: the classes whose methods are not somebody else's overrides.
        is_encoder_decoder: whether a row's prompt is what its encoder is given.
    """

    def __init__(self, trainer: Trainer, *ours: type, is_encoder_decoder: bool) -> None:
        self._trainer = trainer
        self._is_encoder_decoder = is_encoder_decoder
        self._kept: KeptLoaders[PlannedLoader | StreamLoader] = KeptLoaders(trainer, lambda made: made.close(), *ours)
        self.limit = BatchLimit()

    def of(
        self, source: EvaluationSource, ids: npt.NDArray[np.int64] | None, ranks: Ranks, *, stream_rows: int | None
    ) -> Iterator[LoadedBatch]:
        """Return this rank's batches: prompts of like length together, each row read once.

        Args:
            source: the dataset.
            ids: positions of the rows; None for all, and for a stream.
            ranks: the processes that share the rows.
            stream_rows: most rows to read of a stream; None for all.
        """
        sizes = WindowSizes(batch_size=self.limit.lowered(self._trainer.args.eval_batch_size))
        loader = self._loader(source, ranks, stream_rows)
        if isinstance(loader, StreamLoader):
            return loader.run(sizes)
        return loader.run_windows(
            np.arange(len(source.dataset)) if ids is None else ids,
            sizes,
            rank=ranks.index,
            world_size=ranks.size,
            most=lambda value: max(ranks.gather(value)),
        )

    def fetch(self, source: EvaluationSource) -> Callable[[npt.NDArray[np.int64]], Any] | None:
        """Return what reads rows of the dataset again, or None for a stream, which cannot be read again."""
        loader = self._kept.find(source)
        return loader.fetch if isinstance(loader, PlannedLoader) else None

    def close(self) -> None:
        """Close every kept loader and its workers."""
        self._kept.close()

    def _loader(self, source: EvaluationSource, ranks: Ranks, stream_rows: int | None) -> PlannedLoader | StreamLoader:
        made_for = (ranks.index, ranks.size, stream_rows)
        make = partial(self._make, source, ranks, stream_rows)
        return self._kept.get(source, loader_settings(self._trainer), make, *made_for)

    def _make(self, source: EvaluationSource, ranks: Ranks, stream_rows: int | None) -> PlannedLoader | StreamLoader:
        dataset, collate = upstream.dataset_and_collator(self._trainer, source.dataset, source.description)
        if not self._is_encoder_decoder:
            collate = PromptCollator(collate)
        if isinstance(dataset, IterableDataset):
            return stream_loader(self._trainer, dataset, collate, ranks, stream_rows)
        if not self._is_encoder_decoder:
            dataset = PromptRows(_with_prompts(dataset, source.dataset))
        return PlannedLoader(dataset, collate, loader_settings(self._trainer))


def _with_prompts(pruned: Any, given: Any) -> Any:
    """Keep the prompts' column, which the model does not take, beside the columns that it does."""
    columns = getattr(pruned, "column_names", None)
    if columns is None or PROMPT_COLUMN in columns or PROMPT_COLUMN not in given.column_names:
        return pruned
    return given.select_columns([*columns, PROMPT_COLUMN])


def chosen_of(batches: Iterable[LoadedBatch], ids: npt.NDArray[np.int64], ranks: Ranks) -> Iterator[LoadedBatch]:
    """Keep the chosen rows of batches that come collated, equally many batches on every rank.

    A batch in which no rank has a chosen row is left out; a rank without one runs a filler. Where a batch cannot be cut
    by rows, the rows that are not chosen become fillers.

    Args:
        batches: this rank's batches.
        ids: positions of the chosen rows.
        ranks: the processes that evaluate together.
    """
    for batch in batches:
        real = batch.real & np.isin(batch.positions, ids)
        if ranks.any(bool(real.any())):
            yield _cut(batch, real)


def _cut(batch: LoadedBatch, real: npt.NDArray[np.bool_]) -> LoadedBatch:
    if split_inputs(batch.inputs, len(real), [(0, len(real))]) is None:
        return batch._replace(real=real)
    kept = real if real.any() else np.arange(len(real)) == 0
    return LoadedBatch(batch.positions[kept], real[kept], select_rows(batch.inputs, kept))
