"""A memory map of rows on disk that is reduced a few rows at a time."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

PIECE_BYTES = 2**24


class SpooledRows(np.memmap[Any, Any]):
    """A ``numpy.memmap`` whose reductions over other axes than the first go through it a few rows at a time.

    numpy begins a maximum by reading the first number of every row, which takes in pages of the whole file at once.
    Values and types are those of an array in memory; whatever makes a new array of all rows still needs its memory.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryFile() as file:
        ...     rows = SpooledRows(file, dtype=np.float32, mode="w+", shape=(2, 3))
        >>> rows[...] = [[1, 5, 2], [4, 0, 3]]
        >>> rows.max(-1).tolist(), rows.argmax(-1).tolist()
        ([5.0, 4.0], [1, 0])
    """

    def __array_ufunc__(self, ufunc: Any, method: Any, *inputs: Any, out: Any = (), **kwargs: Any) -> Any:
        plain = [_plain(value) for value in inputs]
        targets = tuple(_plain(value) for value in out)
        apply = getattr(ufunc, method)
        if method == "reduce" and not any(value is not None for value in targets) and kwargs.get("where", True) is True:
            axis = kwargs.get("axis", 0)
            if isinstance(axis, int) and axis % max(plain[0].ndim, 1):
                return np.concatenate([apply(piece, **kwargs) for piece in _pieces(inputs[0])])
        if not targets:
            return apply(*plain, **kwargs)
        result = apply(*plain, out=targets, **kwargs)
        return out[0] if len(out) == 1 and out[0] is not None else result

    def argmax(self, axis: Any = None, out: Any = None, **kwargs: Any) -> Any:
        """Return what ``numpy.ndarray.argmax`` does."""
        plain = _plain(self)
        if out is not None or axis is None or axis % self.ndim == 0:
            return plain.argmax(axis, out, **kwargs)
        return np.concatenate([piece.argmax(axis, **kwargs) for piece in _pieces(self)])


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, SpooledRows) else value


def _pieces(rows: SpooledRows) -> Iterator[npt.NDArray[Any]]:
    step = max(1, PIECE_BYTES // max(1, rows[:1].nbytes))
    for first in range(0, max(len(rows), 1), step):
        yield _plain(rows[first : first + step])
        let_go(rows)


def let_go(rows: SpooledRows) -> None:
    """Give up this process's hold on the pages that were read; what they hold stays in the file."""
    if sys.platform == "linux" and isinstance(rows._mmap, mmap.mmap):  # type: ignore[attr-defined]
        rows._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
