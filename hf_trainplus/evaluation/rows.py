"""Predictions, labels and inputs of an evaluation, collected a batch at a time and returned in dataset order."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import torch

from hf_trainplus.evaluation.ranks import Ranks

Array = npt.NDArray[Any]

LABEL_PADDING = -100


def padding_value(dtype: np.dtype[Any]) -> Any:
    """Return what fills the places that a shorter row does not have.

    Integers get -100, the label that is never scored; floats get NaN, since a finite logit would look like a
    prediction; booleans get False.
    """
    if np.issubdtype(dtype, np.floating) or np.issubdtype(dtype, np.complexfloating):
        return np.nan
    return False if dtype == np.bool_ else LABEL_PADDING


def to_numpy(value: Any) -> Array:
    """Copy a tensor to a numpy array; bfloat16, which numpy does not have, becomes float32."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.dtype == torch.bfloat16:
            value = value.float()
        array: Array = value.cpu().numpy()
        return array
    return np.asarray(value)


class SpoolFolder:
    """Where large arrays are kept on disk; every file is already unlinked when it is handed out.

    The space is given back when the process ends, also after a crash.

    Args:
        path: an existing folder; None for the system's folder for temporary files.
        from_bytes: size up to which an array stays in memory, in bytes.
        free_bytes: returns the free bytes of a folder; passed in by tests.
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        from_bytes: int = 2**23,
        free_bytes: Callable[[str], int] | None = None,
    ) -> None:
        self.path = path or tempfile.gettempdir()
        self.from_bytes = from_bytes
        self._free_bytes = free_bytes or (lambda folder: shutil.disk_usage(folder).free)

    def require(self, needed_bytes: int, what: str) -> None:
        """Check that ``needed_bytes`` fit on the disk.

        Raises:
            ValueError: they do not.
        """
        free = self._free_bytes(self.path)
        if needed_bytes > free:
            raise ValueError(
                f"{what} need about {needed_bytes / 2**30:.2f} GiB and {self.path} has {free / 2**30:.2f} GiB free. "
                'Keep less of them, e.g. eval_predictions="argmax" or preprocess_logits_for_metrics=..., or set TMPDIR '
                "to a folder with more room."
            )

    def open(self) -> BinaryIO:
        """Return an empty file that no longer has a name."""
        return tempfile.TemporaryFile(dir=self.path)


class _Column:
    """One leaf of the tree: chunks in memory, moved to a file once they are large, each with its rows' positions."""

    def __init__(self, spool: SpoolFolder | None) -> None:
        self._spool = spool
        self._file: BinaryIO | None = None
        self._positions: list[Array] = []
        self._chunks: list[Any] = []
        self._kinds: list[tuple[tuple[int, ...], np.dtype[Any]] | None] = []
        self._bytes = 0

    def add(self, positions: Array, value: Array | list[Any]) -> None:
        self._positions.append(positions)
        if isinstance(value, list):
            self._chunks.append(value)
            self._kinds.append(None)
            return
        self._kinds.append((value.shape, value.dtype))
        self._bytes += value.nbytes
        self._chunks.append(value if self._file is None else self._write(value))
        if self._file is None and self._spool is not None and self._bytes > self._spool.from_bytes:
            self._file = self._spool.open()
            self._chunks = [self._write(chunk) for chunk in self._chunks]

    def _write(self, value: Array) -> int:
        file = cast("BinaryIO", self._file)
        offset = file.tell()
        file.write(np.ascontiguousarray(value).data)
        return offset

    def chunk(self, k: int) -> tuple[Array, Any] | None:
        if k >= len(self._chunks):
            return None
        value, kind = self._chunks[k], self._kinds[k]
        if self._file is not None and kind is not None:
            shape, dtype = kind
            self._file.seek(value)
            value = np.frombuffer(self._file.read(int(np.prod(shape)) * dtype.itemsize), dtype=dtype).reshape(shape)
        return self._positions[k], value

    def assemble(self, ranks: Ranks) -> Any:
        everywhere = ranks.gather((self._positions, self._kinds))
        order = np.sort(np.concatenate([where for all_where, _ in everywhere for where in all_where]))
        kinds = [kind for _, all_kinds in everywhere for kind in all_kinds]
        out: Any = [None] * len(order) if None in kinds else self._empty(len(order), kinds)
        for k in range(max(len(all_where) for all_where, _ in everywhere)):
            for part in ranks.gather(self.chunk(k)):
                if part is not None:
                    _put(out, np.searchsorted(order, part[0]), part[1])
        self.close()
        return out

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _empty(self, n: int, kinds: list[Any]) -> Array:
        dtype = np.result_type(*[kind[1] for kind in kinds])
        trailing = tuple(int(size) for size in np.max([kind[0][1:] for kind in kinds], axis=0))
        out = self._allocate((n, *trailing), dtype)
        if len({kind[0][1:] for kind in kinds}) > 1:
            out[...] = padding_value(dtype)
        return out

    def _allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        needed = int(np.prod(shape)) * dtype.itemsize
        if self._spool is None or needed <= self._spool.from_bytes:
            return np.empty(shape, dtype)
        self._spool.require(needed, "The predictions")
        with self._spool.open() as file:  # the mapping keeps the nameless file alive
            return np.memmap(file, dtype=dtype, mode="w+", shape=shape)


def _put(out: Any, where: Array, value: Any) -> None:
    if isinstance(out, list):
        for position, item in zip(where, value, strict=True):
            out[int(position)] = item
        return
    inner = tuple(slice(0, size) for size in value.shape[1:])
    out[(where, *inner)] = value


class RowCollector:
    """Collects trees of row-wise arrays and returns them in dataset order, on every rank, in linear time.

    Leaves are tensors or arrays with one row an example, or lists with one item an example (such as the label
    dictionaries of a detection model). What has no rows is dropped.

    Args:
        spool: where arrays are kept; None for memory.
        rows_total: number of rows expected, used to check the free disk space; None when unknown.

    Example:
        >>> import numpy as np
        >>> collector = RowCollector()
        >>> collector.add(np.array([1]), np.array([[5, 6]]))
        >>> collector.add(np.array([0]), np.array([[7]]))
        >>> collector.finish().tolist()
        [[7, -100], [5, 6]]
    """

    def __init__(self, spool: SpoolFolder | None = None, rows_total: int | None = None) -> None:
        self._spool = spool
        self._rows_total = rows_total
        self._tree: Any = None
        self._columns: list[_Column] = []

    def add(self, positions: Array, tree: Any, keep: Array | None = None) -> None:
        """Add one batch.

        Args:
            positions: (rows,) positions in the dataset of the rows that count.
            tree: tensors, arrays or lists with one row an example, nested in tuples and dictionaries.
            keep: rows of the batch that count; None for all.
        """
        rows = len(positions) if keep is None else len(keep)
        leaves: list[Any] = []
        shape = _flatten(tree, rows, leaves)
        if not self._columns:
            self._tree = shape
            self._columns = [_Column(self._spool) for _ in leaves]
            self._check_space(leaves, rows)
        for column, leaf in zip(self._columns, leaves, strict=True):
            column.add(positions, _select(leaf, keep))

    def _check_space(self, leaves: list[Any], rows: int) -> None:
        if self._spool is None or self._rows_total is None or rows == 0:
            return
        row_bytes = sum(leaf.nbytes for leaf in leaves if not isinstance(leaf, list)) / rows
        # written once as it comes and once more in dataset order
        needed = int(2 * row_bytes * self._rows_total)
        if needed > self._spool.from_bytes:
            self._spool.require(needed, "The predictions")

    def finish(self, ranks: Ranks | None = None) -> Any:
        """Return the tree with all rows in dataset order, or None when nothing was added on any rank."""
        ranks = ranks or Ranks()
        counts = ranks.gather(len(self._columns))
        if max(counts) == 0:
            return None
        # every rank has run at least one batch, be it of fillers, so all have the same columns
        assembled = [column.assemble(ranks) for column in self._columns]
        return _unflatten(self._tree, iter(assembled))

    def close(self) -> None:
        """Give back the disk space of an evaluation that was left."""
        for column in self._columns:
            column.close()


def _flatten(tree: Any, rows: int, leaves: list[Any]) -> Any:
    if isinstance(tree, Mapping):
        return {key: _flatten(value, rows, leaves) for key, value in tree.items()}
    if isinstance(tree, list) and len(tree) == rows and not isinstance(tree[0], (torch.Tensor, np.ndarray)):
        leaves.append([_item(value) for value in tree])
        return ...
    if isinstance(tree, (tuple, list)):
        return tuple(_flatten(value, rows, leaves) for value in tree)
    if isinstance(tree, (torch.Tensor, np.ndarray)) and tree.ndim > 0 and tree.shape[0] == rows:
        leaves.append(to_numpy(tree))
        return ...
    return None


def _unflatten(shape: Any, leaves: Any) -> Any:
    if shape is ...:
        return next(leaves)
    if isinstance(shape, dict):
        return {key: _unflatten(value, leaves) for key, value in shape.items()}
    if isinstance(shape, tuple):
        return tuple(_unflatten(value, leaves) for value in shape)
    return None


def _select(leaf: Any, keep: Array | None) -> Any:
    if keep is None or bool(keep.all()):
        return leaf
    if isinstance(leaf, list):
        return [item for item, kept in zip(leaf, keep, strict=True) if kept]
    return leaf[keep]


def _item(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _item(inner) for key, inner in value.items()}
    return to_numpy(value) if isinstance(value, torch.Tensor) else value


def spool_folder_from_environment() -> SpoolFolder:
    """Return the folder for large arrays: ``TRAINPLUS_SPOOL`` when set, else the system's temporary folder."""
    return SpoolFolder(os.environ.get("TRAINPLUS_SPOOL"))
