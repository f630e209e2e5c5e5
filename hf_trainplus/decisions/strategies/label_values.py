"""Classes and label sets as integers, and the encoding of plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.strategies.arrow_values import without_views
from hf_trainplus.results import Int64Array

_SORTABLE = 65_536  # more classes than this keep their order of appearance: sorting them would cost more than drawing


@dataclass(frozen=True)
class ClassLabels:
    """One class a row.

    Args:
        codes: (n,) class of each row, 0 to ``count`` - 1; rows without a label are the last class.
        count: number of classes.
        kind: ``"class"``, or ``"bin"`` of a continuous target.
    """

    codes: npt.NDArray[Any]
    count: int
    kind: str = "class"


@dataclass(frozen=True)
class LabelSets:
    """Any number of labels a row.

    Args:
        rows: (m,) row of each (row, label) pair, ascending; each pair once.
        labels: (m,) label of each pair, 0 to ``count`` - 1; rows whose set is missing have the last label.
        count: number of labels.
        n: number of rows, those with an empty set included.
    """

    rows: Int64Array
    labels: Int64Array
    count: int
    n: int


def encode_values(array: Any) -> ClassLabels:
    """Turn an Arrow array of plain values into classes, in the order of the values, nulls last.

    Args:
        array: (n,) strings, integers, bools, dates or an Arrow dictionary.

    Returns:
        The classes; their numbers do not depend on the order of the rows up to 65,536 classes.
    """
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    if kinds.is_null(array.type):
        return ClassLabels(np.zeros(len(array), np.uint8), 1)
    encoded = array if kinds.is_dictionary(array.type) else array.dictionary_encode()
    indices = encoded.indices
    missing = np.asarray(indices.is_null()) if indices.null_count else np.zeros(len(indices), bool)
    codes = np.asarray(pc.fill_null(indices, 0))
    count = len(encoded.dictionary)
    if 1 < count <= _SORTABLE:
        rank = np.empty(count, np.int64)
        rank[np.asarray(pc.array_sort_indices(without_views(encoded.dictionary)))] = np.arange(count)
        codes = rank.astype(_smallest_kind(count))[codes]
    return classes_with_missing(codes, missing, count)


def classes_with_missing(codes: npt.NDArray[Any], missing: npt.NDArray[np.bool_], count: int) -> ClassLabels:
    """Give rows without a label the class after the last; small integers, which sort by radix."""
    total = count + int(bool(missing.any()))
    small = codes.astype(_smallest_kind(total))
    if total > count:
        small[missing] = count
    return ClassLabels(small, total)


def _smallest_kind(count: int) -> type[np.unsignedinteger[Any]]:
    return np.uint8 if count <= 1 << 8 else np.uint16 if count <= 1 << 16 else np.uint32
