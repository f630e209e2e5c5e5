"""Bring a column of any kind to one Arrow array, so that encoding it needs no Python loop over its rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

_VIEWS = ("string_view", "binary_view")


def as_arrow(column: Any) -> Any | None:
    """Return the column as one Arrow array, NaN as null; None when its entries are of kinds that Arrow cannot mix.

    Args:
        column: Arrow array, numpy array, pandas series, tensor, or a sequence of Python, numpy or tensor values.

    Returns:
        A ``pyarrow.Array`` of the same length, or None.

    Example:
        >>> as_arrow([True, None]).type, as_arrow([1, "a"]) is None
        (DataType(bool), True)
    """
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        return _usual_layout(column.unify_dictionaries().combine_chunks())
    if isinstance(column, pa.Array):
        return _usual_layout(column)
    if hasattr(column, "detach"):
        column = column.tolist()  # a tensor's own conversion: not every kind of it has one in numpy
    if isinstance(column, np.ndarray) and column.ndim > 1:
        return _table_rows(column)
    plain = column
    if isinstance(column, np.ndarray) and column.dtype == np.float16:
        plain = column.astype(np.float32)
    elif not hasattr(column, "dtype") or column.dtype == object:
        plain = [_plain(value) for value in column]
    try:
        return pa.array(plain, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None


def _usual_layout(array: Any) -> Any:
    """The array in a layout that Arrow can count and sort, which it can neither for runs nor for views of texts."""
    import pyarrow.compute as pc

    return without_views(pc.run_end_decode(array) if str(array.type).startswith("run_end_encoded") else array)


def without_views(array: Any) -> Any:
    """Return an array whose entries are no views into other buffers, which Arrow cannot sort."""
    return array.cast(str(array.type).replace("_view", "")) if str(array.type) in _VIEWS else array


def _table_rows(column: np.ndarray[Any, Any]) -> Any:
    """A two-dimensional array is one list a row; a single column is one value a row."""
    import pyarrow as pa

    if column.ndim > 2:
        raise TypeError(f"the label column has shape {column.shape}; allowed are one or two dimensions.")
    if column.shape[1] == 1:
        return as_arrow(column[:, 0])
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(column).reshape(-1)), column.shape[1])


def _plain(value: Any) -> Any:
    """Numpy scalars, tensors and sets as plain Python; sets sorted, since their order differs between runs."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (set, frozenset)):
        return sorted(map(_plain, value), key=repr)
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value


def as_objects(column: Iterable[Any]) -> list[Any]:
    """Return the column as plain Python values."""
    return [_plain(value) for value in column]
