"""An array on disk whose rows are written at their own places, and read through a map of which little is resident."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.evaluation.free_memory import return_freed_memory
from hf_trainplus.evaluation.spool import SpoolFolder
from hf_trainplus.evaluation.spooled_rows import SpooledRows, let_go
from hf_trainplus.evaluation.write_behind import WriteBehind

Array = npt.NDArray[Any]

TRIM_SECONDS = 0.002
RETURN_BYTES = 2**26


class SpooledArray:
    """An array in a file without a name.

    It is written with ordinary file writes: pages that are written through a map count as this process's memory, and
    each costs a fault. Rows may be written in any order, each at its own place; a write goes on behind the caller, and
    its error is raised by the next call.

    Args:
        spool: the folder.
        trailing: shape of one row.
        dtype: of the numbers.

    Example:
        >>> array = SpooledArray(SpoolFolder(), (2,), np.dtype(np.float32))
        >>> array.write(np.array([1, 0]), np.float32([[3, 4], [1, 2]]))
        >>> array.mapped(2).tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """

    def __init__(self, spool: SpoolFolder, trailing: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.trailing = trailing
        self.dtype = dtype
        self.row_bytes = int(np.prod(trailing, dtype=np.int64)) * dtype.itemsize
        self._spool = spool
        self._file = spool.open()
        self._behind = WriteBehind()
        self._since_returned = 0

    def write(self, places: Array, rows: Array) -> None:
        """Write rows (n, *trailing) at their places (n,); they must not change any more."""
        data = np.ascontiguousarray(rows, self.dtype)
        self._since_returned += data.nbytes
        if self._since_returned >= RETURN_BYTES:
            self._since_returned = 0
            return_freed_memory()
        self._behind.start(lambda: self._write(places, data))

    def _write(self, places: Array, data: Array) -> None:
        for first, last in _runs(places):
            _write(self._file, int(places[first]) * self.row_bytes, data[first:last])

    def read(self, places: Array) -> Array:
        """Return a copy of the rows (n, *trailing) at some places (n,)."""
        self._behind.wait()
        rows = np.empty((len(places), *self.trailing), self.dtype)
        for first, last in _runs(places):
            _read(self._file, int(places[first]) * self.row_bytes, rows[first:last])
        return rows

    def mapped(self, n: int) -> Array:
        """Map the first n rows, and give the file back to the folder; the map keeps what it shows.

        The map is writable, as an array in memory is: a function may mask its predictions in place.
        """
        with ExitStack() as on_error:
            on_error.callback(self._file.close)
            self._behind.finish()
            rows = SpooledRows(self._file, dtype=self.dtype, mode="r+", shape=(n, *self.trailing))
            on_error.pop_all()
        self._spool.release(self._file, rows._mmap)  # type: ignore[attr-defined]
        return rows

    def close(self) -> None:
        """Give the disk space back; what has failed to be written is of no interest any more."""
        with self._file, suppress(OSError):
            self._behind.finish()


class ChunkFile:
    """Arrays of any shape, one behind the other in a file without a name.

    Args:
        spool: the folder.
    """

    def __init__(self, spool: SpoolFolder) -> None:
        self._file = spool.open()
        self._end = 0

    def write(self, value: Array) -> int:
        """Write an array and return where it begins, in bytes."""
        offset = self._end
        _write(self._file, offset, np.ascontiguousarray(value))
        self._end += value.nbytes
        return offset

    def read(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return a copy of the array that begins at ``offset``."""
        value = np.empty(shape, dtype)
        _read(self._file, offset, value)
        return value

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()


def _write(file: FileIO, offset: int, value: Array) -> None:
    left = _bytes_of(value)
    file.seek(offset)
    while len(left):  # one call writes 2 GiB at most
        left = left[file.write(left) :]


def _read(file: FileIO, offset: int, into: Array) -> None:
    left = _bytes_of(into)
    file.seek(offset)
    while count := file.readinto(left):
        left = left[count:]


def _runs(places: Array) -> Iterator[tuple[int, int]]:
    """Yield first and last + 1 of stretches of places that follow one another."""
    ends = [*(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), len(places)]
    yield from zip([0, *ends[:-1]], ends, strict=True) if len(places) else ()


def _bytes_of(rows: Array) -> memoryview:
    # not every dtype has a format that a buffer can tell
    return rows.reshape(-1).view(np.uint8).data


@contextmanager
def little_resident(tree: Any) -> Iterator[None]:
    """Keep memory maps in a tree of arrays from filling this process's memory while somebody reads them.

    What was read stays in the system's cache, which it may take back; only this process's hold on it is let go, every
    few milliseconds. Nothing that is read or written changes. Where the system has no such call (other than on Linux)
    nothing is done.

    Args:
        tree: arrays, nested in tuples, lists and dictionaries.
    """
    maps = list(_maps_in(tree))
    if not maps:
        yield
        return
    over = threading.Event()

    def trim() -> None:
        while not over.wait(TRIM_SECONDS):
            for found in maps:
                let_go(found)

    thread = threading.Thread(target=trim, name="trim-predictions", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _maps_in(tree: Any) -> Iterator[SpooledRows]:
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, (tuple, list)):
        for entry in tree:
            yield from _maps_in(entry)
    elif isinstance(tree, SpooledRows):
        yield tree
