"""From a column of labels to one integer class a row, or to sets of labels."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from hf_trainplus.decisions.estimators.group_codes import is_missing
from hf_trainplus.decisions.strategies.arrow_values import as_arrow, as_objects
from hf_trainplus.decisions.strategies.label_lists import encode_lists
from hf_trainplus.decisions.strategies.label_values import ClassLabels, LabelSets, classes_with_missing, encode_values

_MOST_FLOAT_CLASSES = 30  # more distinct fractions than a rating scale has are a continuous target
_FEWEST_ROWS_A_CLASS = 10  # whole floats with fewer rows a value are amounts, not classes


def encode_labels(column: Any, *, bins: int = 10) -> ClassLabels | LabelSets:
    """Turn a column of labels of any kind into classes or label sets.

    None and NaN are a class of their own. Floats with more than 30 distinct values that are not whole numbers are a
    continuous target and are cut into bins of equal size. Lists are label sets, and so are rows of zeros and ones.

    Args:
        column: Arrow array, numpy array, pandas series or list, one entry a row.
        bins: number of bins of a continuous target, >= 1.

    Returns:
        The classes or the label sets.

    Raises:
        TypeError: entries that are no labels (records, lists of lists, unhashable objects).

    Example:
        >>> encode_labels(["b", None, "a", "b"]).codes.tolist()
        [1, 2, 0, 1]
        >>> encode_labels([[0, 1], [1, 1]]).labels.tolist()
        [1, 0, 1]
    """
    array = as_arrow(column)
    if array is None:
        return _encode_objects(as_objects(column))
    import pyarrow.types as kinds

    kind = array.type
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return encode_lists(array)
    if kinds.is_struct(kind) or kinds.is_map(kind) or kinds.is_union(kind):
        raise TypeError(f"the label column holds {kind}; name one of its fields, e.g. label_column='outer.inner'.")
    if kinds.is_floating(kind):
        return _encode_floats(array, bins)
    return encode_values(array)


def _encode_floats(array: Any, bins: int) -> ClassLabels:
    values = np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.float64)
    distinct = np.unique(values[~np.isnan(values)])
    whole = bool((distinct == np.round(distinct)).all())
    rows_a_value = len(values) / max(len(distinct), 1)
    if len(distinct) <= _MOST_FLOAT_CLASSES or (whole and rows_a_value >= _FEWEST_ROWS_A_CLASS):
        return classes_with_missing(np.searchsorted(distinct, values), np.isnan(values), len(distinct))
    edges = np.quantile(values[~np.isnan(values)], np.arange(1, bins) / bins, method="lower")
    binned = classes_with_missing(np.searchsorted(edges, values, side="right"), np.isnan(values), bins)
    return ClassLabels(binned.codes, binned.count, "bin")


def _encode_objects(values: list[Any]) -> ClassLabels:
    """Classes of mixed kinds: 1, True and "1" are three classes."""
    missing = np.array([is_missing(value) for value in values], dtype=bool)
    try:
        keys: list[Hashable] = [(type(value).__name__, value) for value in values]
        present = sorted({key for key, absent in zip(keys, missing, strict=True) if not absent}, key=repr)
    except TypeError as error:
        raise TypeError(f"labels must be hashable or lists of labels: {error}.") from error
    code_of = {key: code for code, key in enumerate(present)}
    return classes_with_missing(np.array([code_of.get(key, 0) for key in keys], np.int64), missing, len(present))
