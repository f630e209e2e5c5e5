"""Out of memory in evaluation: batches are cut, the failed rows run again, and the smaller size is remembered."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size

from hf_trainplus.evaluation.batching import Int64Array
from hf_trainplus.evaluation.packing import split_inputs
from hf_trainplus.evaluation.ranks import OtherRankError
from hf_trainplus.evaluation.windows import LoadedBatch

Result = TypeVar("Result")
Split = Callable[[LoadedBatch, int], Sequence[LoadedBatch] | None]


@dataclass
class BatchLimit:
    """How often the evaluation's batches had to be halved; kept from one evaluation to the next.

    It holds no batch size of its own and never touches the training's.

    Args:
        halvings: how often so far, >= 0.

    Example:
        >>> limit = BatchLimit(halvings=2)
        >>> limit.lowered(4096), limit.lowered(3)
        (1024, 1)
    """

    halvings: int = 0

    def lowered(self, size: int) -> int:
        """Return what a limit of ``size`` rows or tokens has come down to, at least 1."""
        return max(1, size >> self.halvings)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that a device or the host ran out of memory (or cuDNN wants a smaller batch).

    Example:
        >>> is_out_of_memory(torch.cuda.OutOfMemoryError("CUDA out of memory.")), is_out_of_memory(ValueError("no"))
        (True, False)
    """
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, Exception) and bool(should_reduce_batch_size(error))


def run_with_backoff(
    batches: Iterable[LoadedBatch],
    step: Callable[[LoadedBatch], Result],
    limit: BatchLimit,
    *,
    split: Split | None = None,
    agree: Callable[[bool], bool] | None = None,
    release: Callable[[], None] | None = None,
) -> Iterator[tuple[LoadedBatch, Result]]:
    """Run every batch; where memory does not suffice, halve this and all following batches and run the rows again.

    It does not plan: the next evaluation asks ``limit.lowered`` for its sizes. Other errors, and a batch of one row
    that does not fit, are passed on, on all ranks together. ``step`` must leave nothing behind but its result: on
    several ranks it also runs again where it had succeeded, so that all ranks run equally many batches. Where a step
    itself waits for other ranks (FSDP, ZeRO-3, a gather in ``compute_loss``), a rank that fails before it gets there
    leaves the others waiting: no agreement can reach them.

    Args:
        batches: this rank's batches, equally many on every rank.
        step: runs the model on one batch.
        limit: where halvings are counted; the caller keeps it.
        split: cuts a batch into exactly so many parts, fillers where rows are too few, or returns None when it cannot;
            None slices the collated batch by rows.
        agree: True when the flag is True on any rank, called equally often on all; None for one process, which then
            runs no fillers.
        release: gives back what the failed step held; None for garbage collection and the device's cache.

    Yields:
        (batch, result) of each batch or part of one, in order.

    Raises:
        RuntimeError: another rank could not go on.
        Exception: whatever ``step`` raised that is not lack of memory, or is but with a batch that cannot be cut.

    Example:
        >>> import numpy as np
        >>> batch = LoadedBatch(np.arange(3), np.ones(3, dtype=bool), {"x": torch.arange(3)})
        >>> [part.positions.tolist() for part, _ in run_with_backoff([batch], len, BatchLimit())]
        [[0, 1, 2]]
    """
    split = split or split_batch
    parts = 1
    for batch in batches:
        pending = _cut(split, batch, parts, agree)
        while pending:
            outcome = _attempt(step, pending[0], agree or bool)
            if outcome:
                # popped, so that no result is held here while the next batch runs
                yield pending.pop(0), outcome.pop()
                continue
            (release or release_memory)()
            limit.halvings += 1
            parts *= 2
            pending = [half for piece in pending for half in _cut(split, piece, 2, agree)]


def split_batch(
    batch: LoadedBatch, parts: int, *, fetch: Callable[[Int64Array], Any] | None = None
) -> list[LoadedBatch] | None:
    """Cut a batch into ``parts`` by rows; a part without rows repeats the first row as a filler.

    It slices the collated batch where that has one row an example, and otherwise reads the rows again.

    Args:
        batch: the batch to cut.
        parts: number of parts, >= 1.
        fetch: reads and collates rows by position (``PlannedLoader.fetch``); None when rows cannot be read again.

    Returns:
        Exactly ``parts`` batches, or None when the batch can neither be sliced nor read again.

    Example:
        >>> import numpy as np
        >>> batch = LoadedBatch(np.array([7]), np.ones(1, dtype=bool), {"x": torch.zeros(1)})
        >>> [(part.positions.tolist(), part.real.tolist()) for part in split_batch(batch, 2)]
        [([7], [True]), ([7], [False])]
    """
    rows = len(batch.positions)
    edges = [(rows * part + parts - 1) // parts for part in range(parts + 1)]
    bounds = [(first, last) if last > first else (0, 1) for first, last in zip(edges[:-1], edges[1:], strict=True)]
    counts = [last > first for first, last in zip(edges[:-1], edges[1:], strict=True)]
    inputs = split_inputs(batch.inputs, rows, bounds)
    if inputs is None and fetch is not None:
        inputs = [fetch(batch.positions[first:last]) for first, last in bounds]
    if inputs is None:
        return None
    return [
        LoadedBatch(batch.positions[first:last], batch.real[first:last] & has_rows, part)
        for (first, last), has_rows, part in zip(bounds, counts, inputs, strict=True)
    ]


def _attempt(step: Callable[[LoadedBatch], Result], batch: LoadedBatch, agree: Callable[[bool], bool]) -> list[Result]:
    """Run one batch; empty when memory did not suffice on some rank and the batch can be cut.

    Raises on all ranks when it fails on one in another way: the others would wait for it at the next batch.
    """
    outcome: list[Result] = []
    failed: Exception | None = None
    hopeless: Exception | None = None
    try:
        outcome = [step(batch)]
    except Exception as error:
        if not is_out_of_memory(error):
            failed = error
        # an error keeps the failed step's tensors alive through its traceback, so it is kept only to be raised
        elif len(batch.positions) == 1:
            hopeless = error
    if not agree(not outcome):
        return outcome
    _raise_together(failed, agree, "failed; its own error says why")
    _raise_together(hopeless, agree, "ran out of memory with a single row")
    return []


def _cut(split: Split, batch: LoadedBatch, parts: int, agree: Callable[[bool], bool] | None) -> list[LoadedBatch]:
    if parts == 1:
        return [batch]
    pieces = split(batch, parts)
    unsplittable = None
    if pieces is None:
        unsplittable = torch.cuda.OutOfMemoryError(
            f"evaluation ran out of memory and its batch of {len(batch.positions)} rows cannot be cut: its collator "
            "lays rows end to end and a stream cannot be read again; set per_device_eval_batch_size=1 or a lower "
            "eval_tokens_per_batch."
        )
    _raise_together(unsplittable, agree or bool, "has a batch that cannot be cut")
    return [piece for piece in pieces or () if agree is not None or piece.real.any()]


def _raise_together(own: Exception | None, agree: Callable[[bool], bool], reason: str) -> None:
    if not agree(own is not None):
        return
    if own is not None:
        raise own
    raise OtherRankError(f"evaluation stops on all ranks, since another rank {reason}.")


def release_memory() -> None:
    """Give back what a step that ran out of memory held: unreachable objects and the device's cache."""
    gc.collect()
    clear_device_cache()
