"""Label sets from columns of lists: names, class numbers, or zeros and ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.strategies.label_values import (
    ClassLabels,
    LabelSets,
    classes_with_missing,
    encode_values,
)

_IGNORED = -100  # the target that a cross entropy leaves out; it labels nothing


def encode_lists(array: Any) -> ClassLabels | LabelSets:
    """Turn an Arrow array of lists into label sets.

    Lists of one equal length >= 2 that hold only zeros and ones are read as one flag a label. Lists of length 1 are
    plain classes. The target -100 is no label.

    Args:
        array: (n,) lists of strings, integers, bools, or whole floats.

    Returns:
        The label sets, or classes when every list has one entry.

    Raises:
        TypeError: lists of lists, of records, or of fractions.
    """
    import pyarrow.compute as pc

    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0), dtype=np.int64)
    missing = np.asarray(array.is_null())
    values = array.flatten()
    present = lengths[~missing]
    if len(present) and bool((present == 1).all()) and not values.null_count:
        return _single(values, missing)
    rows = np.repeat(np.arange(len(array), dtype=np.int64), lengths)
    if len(present) and present[0] > 1 and bool((present == present[0]).all()) and _flags(values):
        return _from_flags(np.asarray(values, dtype=np.float64), rows, missing, int(present[0]))
    return _from_names(values, rows, missing)


def _flags(values: Any) -> bool:
    import pyarrow.types as kinds

    if values.null_count:
        return False
    if kinds.is_boolean(values.type):
        return True
    if not (kinds.is_integer(values.type) or kinds.is_floating(values.type)):
        return False
    plain = np.asarray(values)
    return bool(((plain == 0) | (plain == 1)).all())


def _single(values: Any, missing: npt.NDArray[np.bool_]) -> ClassLabels:
    classes = encode_values(_names(values))
    codes = np.zeros(len(missing), np.int64)
    codes[~missing] = classes.codes
    return classes_with_missing(codes, missing, classes.count)


def _from_flags(
    flags: npt.NDArray[np.float64], rows: npt.NDArray[np.int64], missing: npt.NDArray[np.bool_], width: int
) -> LabelSets:
    labels = np.tile(np.arange(width, dtype=np.int64), len(flags) // width)
    chosen = flags == 1
    return _sets(rows[chosen], labels[chosen], width, missing)


def _from_names(values: Any, rows: npt.NDArray[np.int64], missing: npt.NDArray[np.bool_]) -> LabelSets:
    import pyarrow.types as kinds

    names = _names(values)
    kept = ~np.asarray(names.is_null())
    if kinds.is_integer(names.type):
        kept &= np.asarray(names.fill_null(_IGNORED)) != _IGNORED
    classes = encode_values(names)
    return _sets(rows[kept], np.asarray(classes.codes[kept], dtype=np.int64), classes.count, missing)


def _names(values: Any) -> Any:
    """Values that can name a label."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_nested(values.type):
        raise TypeError(f"the label column holds lists of {values.type}; allowed are lists of names or class numbers.")
    if not kinds.is_floating(values.type):
        return values
    plain = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)
    present = plain[~np.isnan(plain)]
    if bool((present != np.round(present)).any()):
        raise TypeError("the label column holds lists of fractions; turn scores into labels first, e.g. scores > 0.5.")
    return pa.array(np.where(np.isnan(plain), _IGNORED, plain).astype(np.int64))


def _sets(
    rows: npt.NDArray[np.int64], labels: npt.NDArray[np.int64], count: int, missing: npt.NDArray[np.bool_]
) -> LabelSets:
    """Each (row, label) pair once, rows ascending; rows whose list is missing get a label of their own."""
    absent = np.flatnonzero(missing)
    total = count + int(len(absent) > 0)
    pairs = np.unique(np.concatenate([rows * total + labels, absent * total + count]))
    return LabelSets(pairs // total, pairs % total, total, len(missing))
