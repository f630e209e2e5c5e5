"""Where the lengths of rows come from: a length column, one columnar read, or rows that lie in memory already.

A dataset's own ``__getitem__`` is never called here: where only that would tell the lengths, the answer is None and
rows are measured as they are read (``hf_trainplus.evaluation.windows``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)

LENGTH_COLUMNS = ("length", "input_ids", "input_values")
# padded beside the inputs, so the longer of the two decides; never a length of their own (class labels, boxes)
_TARGET_COLUMNS = ("labels", "decoder_input_ids")


def row_lengths(dataset: object, *, columns: Sequence[str] = LENGTH_COLUMNS) -> Int64Array | None:
    """Find the padded length of every row without reading a row.

    It does not call ``__getitem__``, does not decode a value and does not guess: a dataset that computes its rows
    (a torch ``Dataset`` of one's own, a list with a ``__getitem__`` of its own, ``set_transform``) has no known lengths
    unless it has a column of them. A list of lists in a row counts as its number of lists x the longest.

    Args:
        dataset: a ``datasets.Dataset`` (row selections are honoured), a list or tuple of mappings, or
            ``torch.utils.data.Subset`` and ``ConcatDataset`` of these.
        columns: names to look for, the first that is there is used: whole numbers are lengths, lists are measured, and
            then the longer of the inputs and of ``labels`` or ``decoder_input_ids`` counts. A column with a number
            below 0 holds no lengths: it is passed over, and that is logged once.

    Returns:
        (n,) lengths in elements of the column (tokens for text, samples for raw audio), or None when unknown.

    Example:
        >>> row_lengths([{"input_ids": [1, 2, 3]}, {"input_ids": [4]}]).tolist()
        [3, 1]
        >>> row_lengths([{"pixel_values": [0.5]}]) is None
        True
    """
    if isinstance(dataset, list | tuple) and type(dataset).__getitem__ in (list.__getitem__, tuple.__getitem__):
        return _lengths_in_memory(dataset, columns)
    kind = type(dataset)
    if kind.__module__.startswith("torch.utils.data") and kind.__name__ in ("Subset", "ConcatDataset"):
        return _lengths_of_wrapper(dataset, columns)
    if _is_arrow_dataset(dataset):
        return _lengths_of_arrow(dataset, columns)
    return None


def measured_length(row: object, *, columns: Sequence[str] = LENGTH_COLUMNS) -> int | None:
    """Measure one row that has been read; None when it has no sequence to measure.

    Args:
        row: mapping of column to value: list, list of lists, numpy array or tensor.
        columns: as in ``row_lengths``.

    Returns:
        Elements that the row takes once padded, >= 0.

    Example:
        >>> measured_length({"input_ids": [1, 2], "labels": [3, 4, 5]})
        3
    """
    if not isinstance(row, Mapping):
        return None
    for name in columns:
        if name not in row:
            continue
        value = row[name]
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            if value < 0:
                _say_negative(name)
                continue
            return int(value)
        length = _padded_size(value)
        if length is not None:
            targets = (_padded_size(row[target]) for target in _TARGET_COLUMNS if target in row)
            return max([length, *(size for size in targets if size is not None)])
    return None


def _padded_size(value: object) -> int | None:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(np.prod(shape)) if len(shape) else None
    if not isinstance(value, list | tuple):
        return None
    if value and isinstance(value[0], list | tuple):
        return len(value) * max(len(part) for part in value)
    return len(value)


@cache
def _say_negative(name: str) -> None:
    logger.warning("The column %r holds numbers below 0, so it is not taken for the lengths of rows.", name)


def _lengths_in_memory(rows: Sequence[object], columns: Sequence[str]) -> Int64Array | None:
    columns = [name for name in columns if not _holds_negative(rows, name)]
    lengths = np.empty(len(rows), dtype=np.int64)
    for position, row in enumerate(rows):
        length = measured_length(row, columns=columns)
        if length is None:
            return None
        lengths[position] = length
    return lengths


def _holds_negative(rows: Sequence[object], name: str) -> bool:
    first = rows[0] if rows else None
    if not isinstance(first, Mapping) or not isinstance(first.get(name), int | np.integer):
        return False  # rows of lists are not looked through
    values = (row.get(name) if isinstance(row, Mapping) else None for row in rows)
    found = any(isinstance(value, int | np.integer) and value < 0 for value in values)
    if found:
        _say_negative(name)
    return found


def _lengths_of_wrapper(dataset: Any, columns: Sequence[str]) -> Int64Array | None:
    if type(dataset).__name__ == "Subset":
        inner = row_lengths(dataset.dataset, columns=columns)
        return None if inner is None else inner[np.asarray(dataset.indices, dtype=np.int64)]
    parts = [row_lengths(part, columns=columns) for part in dataset.datasets]
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if known and len(known) == len(parts) else None


def _is_arrow_dataset(dataset: object) -> bool:
    # found by name, so that who does not use datasets never pays for its import
    kind: Any = type(dataset)
    for base in kind.mro():
        if (base.__module__, base.__name__) == ("datasets.arrow_dataset", "Dataset"):
            # a subclass that reads rows in its own way may compute them
            return bool(kind.__getitem__ is base.__getitem__)
    return False


def _lengths_of_arrow(dataset: Any, columns: Sequence[str]) -> Int64Array | None:
    import pyarrow as pa

    # under set_transform the stored lists are not what a row will hold; a length column still is
    computed = dataset.format["type"] == "custom"
    for name in columns:
        if name not in dataset.column_names:
            continue
        column = dataset.data.column(name)
        if pa.types.is_integer(column.type) and not column.null_count:
            stated = _selected(dataset, column.to_numpy())
            if not len(stated) or stated.min() >= 0:
                return stated
            _say_negative(name)
            continue
        lengths = None if computed else _list_lengths(column)
        if lengths is not None:
            stored = [dataset.data.column(key) for key in _TARGET_COLUMNS if key in dataset.column_names]
            targets = [size for size in map(_list_lengths, stored) if size is not None]
            return _selected(dataset, np.maximum.reduce([lengths, *targets]))
    return None


def _list_lengths(column: Any) -> Int64Array | None:
    """Read the offsets of a list column, never its values."""
    import pyarrow.compute as pc

    if not _is_list(column.type):
        return None
    lengths: Int64Array = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    if not _is_list(column.type.value_type):
        return lengths
    parents = pc.list_parent_indices(column).to_numpy()
    inner = pc.fill_null(pc.list_value_length(pc.list_flatten(column)), 0).to_numpy()
    longest = np.zeros(len(lengths), dtype=np.int64)
    np.maximum.at(longest, parents, inner)
    return lengths * longest


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _selected(dataset: Any, values: npt.NDArray[Any]) -> Int64Array:
    """Apply the dataset's row selection (select, shuffle, filter keep the table and note the rows)."""
    selection = dataset._indices
    if selection is not None:
        values = values[selection.column(0).to_numpy()]
    return values.astype(np.int64)
