"""One column of what an evaluation keeps of its rows: in memory while it is small, on disk once it is large."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.spool import SpoolFolder
from hf_trainplus.evaluation.spooled_array import ChunkFile, SpooledArray

Array = npt.NDArray[Any]
Kind = tuple[tuple[int, ...], np.dtype[Any]]

PADDING = -100


def padding_value(dtype: np.dtype[Any]) -> Any:
    """Return what fills the places that a shorter row does not have: -100 as upstream does, False for booleans.

    Among labels -100 is never scored, and no logit is that small: neither looks like a prediction, and a function that
    sums or averages what it is given gets a number.
    """
    return False if dtype == np.bool_ else PADDING


class RowColumn:
    """One leaf of the tree: chunks of rows, each with its rows' positions in the dataset.

    Once they are large, rows that are no wider than the first ones are written to disk at their positions, so that the
    file is the result and nothing is copied (batches come longest first); wider chunks wait in a second file.

    Args:
        spool: where large columns are kept; None for memory.
    """

    def __init__(self, spool: SpoolFolder | None) -> None:
        self._spool = spool
        self._positions: list[Array] = []
        self._chunks: list[Any] = []
        self._kinds: list[Kind | None] = []
        self._bytes = 0
        self._placed: SpooledArray | None = None
        self._wider: ChunkFile | None = None

    def add(self, positions: Array, value: Array | list[Any]) -> None:
        """Take in a batch's rows."""
        self._positions.append(positions)
        self._chunks.append(value)
        self._kinds.append(None if isinstance(value, list) else (value.shape, value.dtype))
        if isinstance(value, list):
            return
        self._bytes += value.nbytes
        if self._spool is None or self._bytes <= self._spool.from_bytes:
            return
        if self._placed is None:
            self._placed = SpooledArray(self._spool, *_common(self._kinds))
            for where, chunk in zip(self._positions, self._chunks, strict=True):
                self._placed.write(where, _widened(chunk, self._placed.trailing, self._placed.dtype))
            self._chunks = [self._placed] * len(self._chunks)
        else:
            self._chunks[-1] = self._on_disk(self._placed, self._spool, positions, value)

    def _on_disk(self, placed: SpooledArray, spool: SpoolFolder, positions: Array, value: Array) -> SpooledArray | int:
        fits = value.ndim == len(placed.trailing) + 1 and np.can_cast(value.dtype, placed.dtype, "safe")
        if fits and all(size <= most for size, most in zip(value.shape[1:], placed.trailing, strict=True)):
            placed.write(positions, _widened(value, placed.trailing, placed.dtype))
            return placed
        self._wider = self._wider or ChunkFile(spool)
        return self._wider.write(value)

    def _chunk(self, k: int) -> tuple[Array, Any] | None:
        if k >= len(self._chunks):
            return None
        positions, value = self._positions[k], self._chunks[k]
        if isinstance(value, SpooledArray):
            value = value.read(positions)
        elif self._wider is not None and isinstance(value, int):
            value = self._wider.read(value, *cast("Kind", self._kinds[k]))
        return positions, value

    def assemble(self, ranks: Ranks) -> Any:
        """Return the rows of all ranks in dataset order, shorter rows filled."""
        everywhere = ranks.gather((self._positions, self._kinds))
        order = np.sort(np.concatenate([where for all_where, _ in everywhere for where in all_where]))
        if ranks.size == 1 and self._placed is not None and self._is_in_place(order):
            return self._placed.mapped(len(order))
        kinds = [kind for _, all_kinds in everywhere for kind in all_kinds]
        out = _ListRows(len(order)) if None in kinds else self._empty(len(order), kinds)
        for k in range(max(len(all_where) for all_where, _ in everywhere)):
            for part in ranks.gather(self._chunk(k)):
                if part is not None:
                    out.put(np.searchsorted(order, part[0]), part[1])
        self.close()
        return out.finish()

    def _is_in_place(self, order: Array) -> bool:
        """Say whether the file on disk holds every row of the result at its place."""
        return all(chunk is self._placed for chunk in self._chunks) and np.array_equal(order, np.arange(len(order)))

    def _empty(self, n: int, kinds: list[Any]) -> _MemoryRows | _DiskRows:
        trailing, dtype = _common(kinds)
        needed = n * int(np.prod(trailing, dtype=np.int64)) * dtype.itemsize
        if self._spool is None or needed <= self._spool.from_bytes:
            return _MemoryRows(n, trailing, dtype)
        self._spool.require(needed, "The predictions")
        return _DiskRows(SpooledArray(self._spool, trailing, dtype), n)

    def close(self) -> None:
        """Give back the disk space."""
        for file in (self._placed, self._wider):
            if file is not None:
                file.close()


class _ListRows:
    def __init__(self, n: int) -> None:
        self._rows: list[Any] = [None] * n

    def put(self, where: Array, value: Any) -> None:
        for position, item in zip(where, value, strict=True):
            self._rows[int(position)] = item

    def finish(self) -> list[Any]:
        return self._rows


class _MemoryRows:
    def __init__(self, n: int, trailing: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._rows: Array = np.empty((n, *trailing), dtype)

    def put(self, where: Array, value: Array) -> None:
        self._rows[where] = _widened(value, self._rows.shape[1:], self._rows.dtype)

    def finish(self) -> Array:
        return self._rows


class _DiskRows:
    def __init__(self, array: SpooledArray, n: int) -> None:
        self._array, self._n = array, n

    def put(self, where: Array, value: Array) -> None:
        self._array.write(where, _widened(value, self._array.trailing, self._array.dtype))

    def finish(self) -> Array:
        return self._array.mapped(self._n)


def _common(kinds: list[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and the dtype of one row that hold all chunks."""
    trailing = tuple(int(size) for size in np.max([kind[0][1:] for kind in kinds], axis=0))
    return trailing, np.result_type(*{kind[1] for kind in kinds})


def _widened(value: Array, trailing: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if value.shape[1:] == trailing:
        return value
    wide = np.full((len(value), *trailing), padding_value(dtype), dtype)
    wide[(slice(None), *(slice(0, size) for size in value.shape[1:]))] = value
    return wide
