"""Predictions, labels and inputs of an evaluation, collected a batch at a time and returned in dataset order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.row_column import RowColumn
from hf_trainplus.evaluation.spool import SpoolFolder

Array = npt.NDArray[Any]


def to_numpy(value: Any) -> Array:
    """Copy a tensor to a numpy array; bfloat16, which numpy does not have, becomes float32."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.dtype == torch.bfloat16:
            value = value.float()
        array: Array = value.cpu().numpy()
        return array
    return np.asarray(value)


class RowCollector:
    """Collects trees of row-wise arrays and returns them in dataset order, on every rank, in linear time.

    Leaves are tensors or arrays with one row an example, or lists with one item an example (such as the label
    dictionaries of a detection model). What has no rows is dropped.

    Args:
        spool: where arrays are kept; None for memory.
        rows_total: number of rows expected, used to check the free disk space; None when unknown.
        copies: how many files on the disk hold them at the same time.

    Example:
        >>> import numpy as np
        >>> collector = RowCollector()
        >>> collector.add(np.array([1]), np.array([[5, 6]]))
        >>> collector.add(np.array([0]), np.array([[7]]))
        >>> collector.finish().tolist()
        [[7, -100], [5, 6]]
    """

    def __init__(self, spool: SpoolFolder | None = None, rows_total: int | None = None, *, copies: int = 1) -> None:
        self._spool = spool
        self._rows_total = rows_total
        self._copies = copies
        self._tree: Any = None
        self._columns: list[RowColumn] = []

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
            self._columns = [RowColumn(self._spool) for _ in leaves]
            self._check_space(leaves, rows)
        for column, leaf in zip(self._columns, leaves, strict=True):
            column.add(positions, _select(leaf, keep))

    def _check_space(self, leaves: list[Any], rows: int) -> None:
        if self._spool is None or self._rows_total is None or rows == 0:
            return
        row_bytes = sum(leaf.nbytes for leaf in leaves if not isinstance(leaf, list)) / rows
        needed = int(self._copies * row_bytes * self._rows_total)
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
