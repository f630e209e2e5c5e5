"""From a plan to collated batches, for datasets whose rows can be read by position.

Streams are read by ``hf_trainplus.evaluation.streaming``; all that an evaluation loop needs is imported from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.evaluation.batching import BatchPlan, Int64Array, plan_batches
from hf_trainplus.evaluation.streaming import StreamLoader
from hf_trainplus.evaluation.tasks import LoaderSettings, TaskLoader
from hf_trainplus.evaluation.windows import (
    Collate,
    LoadedBatch,
    Window,
    WindowSizes,
    collate_window,
    level_batches,
    together,
)

__all__ = ["LoadedBatch", "LoaderSettings", "PlannedLoader", "StreamLoader", "WindowSizes"]


class PlannedLoader:
    """Reads the rows that a plan names and collates them, with the same workers for every evaluation.

    It does not plan, does not move anything to a device, does not draw from the training's random state, and does not
    change the dataset or the collator, which are fixed when it is made.

    Args:
        dataset: anything with ``__getitem__``; ``__getitems__`` is used where it is there, one call a batch.
        collate: turns a list of rows into the model's inputs.
        settings: workers and memory.

    Example:
        >>> with PlannedLoader([3, 1, 2], sum) as loader:
        ...     [(batch.positions.tolist(), batch.inputs) for batch in loader.run(plan_batches([2, 0], batch_size=2))]
        [([2, 0], 5)]
    """

    def __init__(self, dataset: Any, collate: Collate, settings: LoaderSettings | None = None) -> None:
        self._settings = settings or LoaderSettings()
        self._reader = _Reader(dataset, collate)
        self._tasks = TaskLoader(self._reader, self._settings)
        self._held: dict[int, Any] = {}

    def __enter__(self) -> PlannedLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, plan: BatchPlan) -> Iterator[LoadedBatch]:
        """Yield the plan's batches in order, as (positions int64, real bool, inputs).

        Raises:
            RuntimeError: the loader is closed, or a newer run has begun.
        """
        held = self._take_held()
        tasks = (_Task(batch, given=_given(held, batch)) for batch in plan.batches)
        for positions, real, inputs in zip(plan.batches, plan.real, self._tasks.run(tasks), strict=True):
            yield LoadedBatch(positions, real, inputs)

    def run_windows(
        self,
        ids: npt.ArrayLike,
        sizes: WindowSizes,
        *,
        rank: int = 0,
        world_size: int = 1,
        most: Callable[[int], int] | None = None,
    ) -> Iterator[LoadedBatch]:
        """Yield the rows of ``ids`` where lengths are unknown: read a window, sort it, batch it under the limit.

        Each row is read once (fillers are copies). The first block of ``batch_size`` rows tells whether rows can be
        measured at all and how much memory they take; if they cannot, the rest comes in plain batches.

        Args:
            ids: (n,) row positions, the same on every rank.
            sizes: limits of window and batch, the same on every rank.
            rank: number of this process in [0, world_size).
            world_size: number of processes, >= 1.
            most: the largest over all ranks of a whole number; it must be given with more than one rank and is called
                equally often on all of them.

        Raises:
            RuntimeError: the loader is closed, or a newer run has begun.
            ValueError: more than one rank and no ``most``.
        """
        if world_size > 1 and most is None:
            raise ValueError(
                f"run_windows() was given world_size={world_size} and most=None; give most=<maximum over the ranks>."
            )
        self._take_held()
        agree = most if most is not None and world_size > 1 else _alone
        positions = np.asarray(ids, dtype=np.int64)
        head, rest = np.split(positions, [sizes.batch_size * world_size])
        unmeasured, row_bytes = 0, 1
        first = plan_batches(head, batch_size=sizes.batch_size, rank=rank, world_size=world_size)
        for window in together(self._windows(first, sizes, with_filler=world_size > 1), most):
            unmeasured, row_bytes = agree(int(not window.measured)), agree(window.row_bytes)
            yield from level_batches(window, agree)
        if unmeasured:
            yield from self.run(plan_batches(rest, batch_size=sizes.batch_size, rank=rank, world_size=world_size))
            return
        rows = self._window_rows(len(rest), sizes, row_bytes, world_size)
        blocks = plan_batches(rest, batch_size=rows, rank=rank, world_size=world_size)
        for window in together(self._windows(blocks, sizes, with_filler=world_size > 1), most):
            yield from level_batches(window, agree)

    def fetch(self, positions: Int64Array, *, hold: bool = False) -> Any:
        """Read and collate rows in this process, e.g. those of a batch that did not fit in memory.

        Args:
            positions: (n,) row positions.
            hold: keep the rows until the next run ends, which then does not read them again.
        """
        if not hold:
            return self._reader(_Task(positions))
        missing = [position for position in positions.tolist() if position not in self._held]
        if missing:
            self._held.update(zip(missing, self._reader.rows(missing), strict=True))
        # copies, since a collator may take columns out of the rows that it is given
        return self._reader(_Task(positions, given={row: copy(self._held[row]) for row in positions.tolist()}))

    def close(self) -> None:
        """End the workers and wait for them; a second call does nothing."""
        self._tasks.close()

    def _take_held(self) -> dict[int, Any]:
        held, self._held = self._held, {}
        return held

    def _windows(self, blocks: BatchPlan, sizes: WindowSizes, *, with_filler: bool) -> Iterator[Window]:
        tasks = (_Task(block, sizes, with_filler) for block in blocks.batches)
        for real, window in zip(blocks.real, self._tasks.run(tasks), strict=True):
            yield window if real.all() else _unreal(window)

    def _window_rows(self, row_count: int, sizes: WindowSizes, row_bytes: int, world_size: int) -> int:
        """Spread the rows evenly: equal windows keep ranks and workers busy to the end."""
        most_rows = sizes.rows_ahead(row_bytes, self._settings.held_at_once)
        rounds = max(-(-row_count // (most_rows * world_size)), self._settings.num_workers, 1)
        return max(sizes.batch_size, -(-row_count // (rounds * world_size)))


@dataclass(frozen=True)
class _Task:
    positions: Int64Array
    sizes: WindowSizes | None = None
    with_filler: bool = False
    given: Mapping[int, Any] | None = None


class _Reader:
    """Answers a task in the worker: the rows of a batch collated, or a window of them planned and collated."""

    def __init__(self, dataset: Any, collate: Collate) -> None:
        self._dataset = dataset
        self._collate = collate

    def __call__(self, task: _Task) -> Any:
        rows = self._rows_of(task)
        if task.sizes is None:
            return self._collate(rows)
        return collate_window(rows, task.positions, self._collate, task.sizes, with_filler=task.with_filler)

    def _rows_of(self, task: _Task) -> list[Any]:
        positions, given = task.positions.tolist(), task.given
        if not given:
            return self.rows(positions)
        missing = [position for position in positions if position not in given]
        read = iter(self.rows(missing) if missing else ())
        return [given[position] if position in given else next(read) for position in positions]

    def rows(self, positions: list[int]) -> list[Any]:
        """Read rows, with one call where the dataset takes several."""
        batched = getattr(self._dataset, "__getitems__", None)
        if batched is not None:
            return list(batched(positions))
        return [self._dataset[position] for position in positions]


def _given(held: dict[int, Any], positions: Int64Array) -> dict[int, Any] | None:
    return {row: held.pop(row) for row in positions.tolist() if row in held} if held else None


def _alone(value: int) -> int:
    return value


def _unreal(window: Window) -> Window:
    batches = (batch._replace(real=np.zeros_like(batch.real)) for batch in window.batches)
    return window._replace(batches=tuple(batches))
