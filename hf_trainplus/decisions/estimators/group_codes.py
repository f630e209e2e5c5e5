"""Groups of rows as integers: slices and clusters named by values of any kind, missing ones included."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.results import Int64Array


def group_codes(values: npt.ArrayLike) -> tuple[Int64Array, list[Any]]:
    """Number the groups of a column; None and NaN are one group, named None.

    Args:
        values: (n,) group of each row, any hashable values.

    Returns:
        (n,) code of each row, 0 to G - 1, and the G names, by kind and value.

    Example:
        >>> codes, names = group_codes(["b", None, "a", "b"])
        >>> codes.tolist(), names
        ([2, 0, 1, 2], [None, 'a', 'b'])
    """
    column = np.asarray(values)
    if column.dtype != object:
        found, codes = np.unique(column, return_inverse=True)  # one NaN for all
        firsts, places = found.tolist(), codes.reshape(column.shape)
    else:
        numbers: dict[Any, int] = {}
        named = [None if is_missing(value) else value for value in column.tolist()]
        places = np.array([numbers.setdefault(value, len(numbers)) for value in named], np.int64)
        firsts = list(numbers)
    names = [None if value != value else value for value in firsts]
    order = sorted(range(len(names)), key=lambda place: _sort_key(names[place]))
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    return rank[places], [names[place] for place in order]


def is_missing(value: Any) -> bool:
    """Say whether a value is None, NaN, NaT or pandas' NA, which compares with nothing.

    Example:
        >>> is_missing(float("nan")), is_missing(0)
        (True, False)
    """
    if value is None:
        return True
    other = value != value
    return bool(other) if isinstance(other, (bool, np.bool_)) else type(value).__name__ == "NAType"


def _sort_key(name: Any) -> tuple[str, Any]:
    return type(name).__name__, 0 if name is None else name


def cluster_codes(clusters: npt.ArrayLike) -> Int64Array:
    """Number clusters from 0 to G - 1; a row whose cluster is missing belongs with no other.

    Args:
        clusters: (n,) cluster of each row, any hashable values.

    Example:
        >>> cluster_codes(["a", None, "a", None]).tolist()
        [1, 0, 1, 2]
    """
    codes, names = group_codes(clusters)
    if None in names:
        alone = np.flatnonzero(codes == names.index(None))
        codes[alone[1:]] = len(names) + np.arange(len(alone) - 1)
    return codes
