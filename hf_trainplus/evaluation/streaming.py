"""Streams in evaluation: every row once over all ranks, sorted in a look-ahead window, equal counts on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, repeat
from typing import Any

import numpy as np

from hf_trainplus.evaluation.endless import is_endless
from hf_trainplus.evaluation.ranks import OtherRankError
from hf_trainplus.evaluation.tasks import LoaderSettings, TaskLoader
from hf_trainplus.evaluation.windows import Collate, LoadedBatch, Window, WindowSizes, collate_window, level_batches

Scatter = Callable[[list[Any] | None], Any]


class StreamLoader:
    """Reads a stream from its start for every evaluation; a row's position is its number in order of arrival.

    It does not shuffle, does not seek, and does not keep rows. A stream is read in one place at a time, so one worker
    at most is used. Ranks share it in one of three ways: rank 0 reads and hands out batches (``scatter`` is given; for
    an order that may differ between processes); every rank reads all rows and keeps its own (no ``scatter``; the order
    must be the same everywhere); or the stream was split between ranks before (``split_dataset_by_node``), each rank
    reads its own rows, and row k of rank r has the position k * world_size + r.

    An endless stream without a limit is refused where that can be seen (``hf_trainplus.evaluation.endless``); where it
    cannot be seen, it is read for ever.

    Args:
        stream: torch or ``datasets`` ``IterableDataset``, or any iterable that starts anew with each ``iter()``.
        collate: turns a list of rows into the model's inputs.
        settings: workers and memory.
        limit: number of rows over all ranks after which reading stops, >= 1; None for all.
        rank: number of this process in [0, world_size).
        world_size: number of processes, >= 1.
        scatter: hands entry r of rank 0's list to rank r (None is passed elsewhere), e.g. ``scatter_object_list``.
        most: the largest over all ranks of a whole number; needed for a stream that was split before.

    Raises:
        ValueError: an endless stream without a limit, a limit below 1, or a split stream without ``most``.

    Example:
        >>> loader = StreamLoader(range(10, 15), sum)
        >>> [(b.positions.tolist(), b.inputs) for b in loader.run(WindowSizes(batch_size=2))]
        [([0, 1], 21), ([2, 3], 25), ([4], 14)]
    """

    def __init__(
        self,
        stream: Any,
        collate: Collate,
        settings: LoaderSettings | None = None,
        *,
        limit: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        scatter: Scatter | None = None,
        most: Callable[[int], int] | None = None,
    ) -> None:
        _check(stream, limit)
        split = world_size > 1 and getattr(stream, "_distributed", None) is not None
        if split and most is None:
            raise ValueError("the stream was split between ranks and most=None was given; give most=<max over ranks>.")
        self._rank, self._world_size = rank, world_size
        self._scatter = scatter if world_size > 1 and not split else None
        self._most = most if split else None
        self._runs = 0
        reader = _StreamReader(stream, collate, limit, rank, world_size, self._shares())
        settings = settings or LoaderSettings()
        self._tasks = TaskLoader(reader, replace(settings, num_workers=min(1, settings.num_workers)))

    def __enter__(self) -> StreamLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, sizes: WindowSizes) -> Iterator[LoadedBatch]:
        """Yield this rank's batches of the whole stream, equally many on every rank.

        Args:
            sizes: limits of window and batch, the same on every rank; a window is shared by all ranks.

        Raises:
            RuntimeError: the loader is closed, a newer run has begun, or rank 0 could not read the stream.
            ValueError: a stream that was split so that a rank has no row.
        """
        self._runs += 1
        if self._scatter is not None:
            yield from self._handed_out(self._scatter, sizes)
        elif self._most is not None:
            yield from self._levelled(self._most, sizes)
        else:
            for windows in self._answers(sizes):
                yield from windows[0].batches

    def close(self) -> None:
        """End the worker and wait for it; a second call does nothing."""
        self._tasks.close()

    def _shares(self) -> tuple[tuple[int, int], ...]:
        """Name the (rank, world size) for which this process collates the rows that it reads."""
        if self._most is not None:
            return ((0, 1),)
        if self._scatter is not None:
            return tuple((rank, self._world_size) for rank in range(self._world_size))
        return ((self._rank, self._world_size),)

    def _answers(self, sizes: WindowSizes) -> Iterator[list[Window]]:
        for windows, is_last in self._tasks.run(repeat(_StreamTask(self._runs, sizes))):
            if windows:
                yield windows
            if is_last:
                return

    def _handed_out(self, scatter: Scatter, sizes: WindowSizes) -> Iterator[LoadedBatch]:
        own = self._read_for_all(scatter, sizes) if self._rank == 0 else iter(lambda: scatter(None), None)
        for window in own:
            if isinstance(window, _ReadingFailed):
                raise RuntimeError(f"rank 0 could not read the stream: {window.reason}")
            yield from window.batches

    def _read_for_all(self, scatter: Scatter, sizes: WindowSizes) -> Iterator[Window]:
        answers = self._answers(sizes)
        while True:
            try:
                windows = next(answers, None)
            except Exception as error:
                # the others wait in scatter: tell them before the error goes its way
                scatter([_ReadingFailed(repr(error))] * self._world_size)
                raise
            own = scatter(windows if windows is not None else [None] * self._world_size)
            if own is None:
                return
            yield own

    def _levelled(self, most: Callable[[int], int], sizes: WindowSizes) -> Iterator[LoadedBatch]:
        answers = self._answers(sizes)
        filler: LoadedBatch | None = None
        while True:
            try:
                windows = next(answers, None)
            except Exception:
                most(3)
                raise
            window = windows[0] if windows else Window((), filler, measured=False, row_bytes=1)
            filler = window.filler
            # one number tells every rank the same: 0 all have ended, 1 go on, 2 a rank never had a row to repeat, 3 one
            # could not read the stream
            state = most(2 if filler is None else int(bool(window.batches)))
            if state == 3:
                raise OtherRankError("another rank could not read the stream; its own error says why.")
            if state == 2:
                raise ValueError(
                    "the stream was split between ranks and a rank got no row; split it into at most as many parts as "
                    "it has rows, or do not split it."
                )
            if state == 0:
                return
            yield from level_batches(window, most)


@dataclass(frozen=True)
class _StreamTask:
    run: int
    sizes: WindowSizes


@dataclass(frozen=True)
class _ReadingFailed:
    reason: str


class _StreamReader:
    """Lives where the stream is read and remembers how far it is; a task with a new run number starts anew."""

    def __init__(
        self,
        stream: Any,
        collate: Collate,
        limit: int | None,
        rank: int,
        world_size: int,
        shares: tuple[tuple[int, int], ...],
    ) -> None:
        self._stream, self._collate, self._shares = stream, collate, shares
        self._split = shares == ((0, 1),) and world_size > 1
        self._first, self._step = (rank, world_size) if self._split else (0, 1)
        self._limit = None if limit is None else len(range(self._first, limit, self._step))
        self._run = 0
        self._rows: Iterator[Any] = iter(())
        self._read = 0
        self._block = 0

    def __call__(self, task: _StreamTask) -> tuple[list[Window], bool]:
        """Read the next window; return one Window a share, and whether the stream has ended."""
        together = self._shares[0][1]
        if task.run != self._run:
            self._run, self._read = task.run, 0
            self._rows = islice(iter(self._stream), self._limit)
            self._block = task.sizes.batch_size * together
        rows = list(islice(self._rows, self._block))
        is_last = len(rows) < self._block
        if is_last:
            self._rows = iter(())
        if not rows:
            return [], True
        positions = self._first + self._step * np.arange(self._read, self._read + len(rows), dtype=np.int64)
        windows = [self._window(rows, positions, task.sizes, *share) for share in self._shares]
        if self._read == 0 and windows[0].measured:
            self._block = task.sizes.rows_ahead(windows[0].row_bytes) * together
        self._read += len(rows)
        return windows, is_last

    def _window(self, rows: list[Any], positions: Any, sizes: WindowSizes, rank: int, world_size: int) -> Window:
        return collate_window(
            rows, positions, self._collate, sizes, rank=rank, world_size=world_size, with_filler=self._split
        )


def _check(stream: object, limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit} was given; allowed are whole numbers of rows >= 1, or None for all rows.")
    if limit is None and is_endless(stream):
        raise ValueError(
            f"{type(stream).__name__} never ends and no limit was given, so its evaluation would never end; give a "
            "number of rows: eval_subset_size=1000."
        )
