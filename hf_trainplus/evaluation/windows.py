"""Rows of unknown length, sorted inside a bounded look-ahead window as they are read: each row is read once.

The functions work on rows in memory and know no dataset, no worker and no other rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hf_trainplus.evaluation.batching import BoolArray, Int64Array, plan_batches
from hf_trainplus.evaluation.lengths import measured_length
from hf_trainplus.evaluation.ranks import OtherRankError

Collate = Callable[[list[Any]], Any]

_BYTES_OF_NUMBER = 8
_WINDOW_BATCHES = 32
_WINDOW_BYTES = 256 * 2**20


class LoadedBatch(NamedTuple):
    """One batch as the model gets it, and which rows of the dataset it holds."""

    positions: Int64Array
    real: BoolArray
    inputs: Any


@dataclass(frozen=True)
class WindowSizes:
    """How far to look ahead, and how large a batch may be.

    Args:
        batch_size: rows of a plain batch, >= 1; also of the first, measuring block.
        tokens_per_batch: largest rows x longest row, >= 1; None for sorted batches of ``batch_size`` rows.
        max_rows: largest number of rows under the token limit, >= 1; None for no bound.
        window_rows: most rows held at a time, >= 1; None for 32 plain batches.
        window_bytes: most memory that the rows of a window may take, in bytes, >= 1.
        keep_order: leave rows in plain batches in order of arrival, for losses that depend on batch mates.
        even_rows: give all ranks that share a window equally many rows in each round, see ``plan_batches``.

    Raises:
        ValueError: a size below 1.

    Example:
        >>> WindowSizes(batch_size=8).rows_ahead(row_bytes=2**20)
        256
    """

    batch_size: int
    tokens_per_batch: int | None = None
    max_rows: int | None = None
    window_rows: int | None = None
    window_bytes: int = _WINDOW_BYTES
    keep_order: bool = False
    even_rows: bool = False

    def __post_init__(self) -> None:
        for name in ("batch_size", "tokens_per_batch", "max_rows", "window_rows", "window_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} was given; allowed are whole numbers >= 1.")

    def rows_ahead(self, row_bytes: int, held_at_once: int = 1) -> int:
        """Rows of a window: within the memory allowed for ``held_at_once`` windows, at least one batch."""
        rows = self.window_rows or _WINDOW_BATCHES * self.batch_size
        fitting = self.window_bytes // (max(1, row_bytes) * held_at_once)
        return max(self.batch_size, min(rows, fitting))


class Window(NamedTuple):
    """What became of one block of rows.

    Args:
        batches: this rank's batches, longest rows first where lengths were measured.
        filler: a batch of one row to repeat while other ranks still work, or None.
        measured: True when every row had a length.
        row_bytes: memory of the largest row, in bytes.
    """

    batches: tuple[LoadedBatch, ...]
    filler: LoadedBatch | None
    measured: bool
    row_bytes: int


def collate_window(
    rows: Sequence[Any],
    positions: Int64Array,
    collate: Collate,
    sizes: WindowSizes,
    *,
    rank: int = 0,
    world_size: int = 1,
    with_filler: bool = False,
) -> Window:
    """Measure the rows of a window, plan them, and collate this rank's batches.

    It does not read rows. Rows without a measurable length stay in plain batches.

    Args:
        rows: (n,) rows of the dataset, n >= 1, the same on all ranks that share the window.
        positions: (n,) their positions.
        collate: turns a list of rows into the model's inputs.
        sizes: limits of a batch.
        rank: number of this process in [0, world_size).
        world_size: number of processes that share these rows; 1 when the rows are this rank's alone.
        with_filler: collate the last planned row once more, as a batch for ``Window.filler``.

    Returns:
        The window's batches; their number is the same on every rank that shares the rows.
    """
    lengths = [None if sizes.keep_order else measured_length(row) for row in rows]
    known = [length for length in lengths if length is not None]
    measured = len(known) == len(rows)
    plan = plan_batches(
        np.arange(len(rows)),
        known if measured else None,
        batch_size=sizes.batch_size,
        tokens_per_batch=sizes.tokens_per_batch,
        max_rows=sizes.max_rows,
        rank=rank,
        world_size=world_size,
        even_rows=sizes.even_rows,
    )
    loaded = [
        LoadedBatch(positions[members], real, collate([rows[member] for member in members.tolist()]))
        for members, real in zip(plan.batches, plan.real, strict=True)
    ]
    filler = None
    if with_filler:
        last = int(plan.batches[-1][-1])
        filler = LoadedBatch(positions[[last]], np.zeros(1, dtype=np.bool_), collate([rows[last]]))
    return Window(tuple(loaded), filler, measured, max(row_bytes(row) for row in rows))


def level_batches(window: Window, most: Callable[[int], int]) -> Iterator[LoadedBatch]:
    """Yield a window's batches, then fillers until the rank with most batches in this round is done.

    Args:
        window: this rank's batches, and the filler if ranks may have unequal counts.
        most: the largest over all ranks of a whole number; it is called once.

    Raises:
        RuntimeError: fillers are needed and the window has none.
    """
    count = most(len(window.batches))
    yield from window.batches
    for _ in range(count - len(window.batches)):
        if window.filler is None:
            raise RuntimeError(f"this rank has {len(window.batches)} batches, another {count}, and no filler was made.")
        # a copy, since a trainer may take the labels out of what it is given
        yield window.filler._replace(inputs=copy(window.filler.inputs))


def together(windows: Iterator[Window], most: Callable[[int], int] | None) -> Iterator[Window]:
    """Yield windows, equally many on every rank; where one rank cannot read its next one, all raise.

    Args:
        windows: this rank's windows.
        most: the largest over all ranks of a whole number, called once a window; None for one process.

    Raises:
        RuntimeError: another rank could not read its rows.
        Exception: what reading raised on this rank.
    """
    while most is not None:
        failed: Exception | None = None
        window: Window | None = None
        try:
            window = next(windows, None)
        except Exception as error:
            failed = error
        if most(int(failed is not None)):
            raise failed or OtherRankError("another rank could not read its rows; its own error says why.")
        if window is None:
            return
        yield window
    yield from windows


def row_bytes(row: object) -> int:
    """Estimate the memory of a row from its arrays, tensors, lists and strings; never below 1.

    It does not follow objects of other kinds.

    Example:
        >>> row_bytes({"input_ids": [1, 2, 3], "text": "abc"})
        27
    """
    return max(1, _bytes_of(row))


def _bytes_of(value: object) -> int:
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_bytes_of(part) for part in value.values())
    if isinstance(value, list | tuple):
        # the rows of a column are of one kind, so the first speaks for all
        return len(value) * _bytes_of(value[0]) if value and not isinstance(value[0], Mapping) else _sum_of(value)
    return _BYTES_OF_NUMBER


def _sum_of(values: Sequence[object]) -> int:
    return sum(_bytes_of(value) for value in values)
