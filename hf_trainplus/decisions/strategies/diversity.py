"""Rows drawn from every cluster of the dataset's features, so that each kind of row is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.strategies.arrow_values import as_arrow, as_objects
from hf_trainplus.decisions.strategies.columns import DatasetColumns
from hf_trainplus.decisions.strategies.drawing import draw_strata
from hf_trainplus.decisions.strategies.kmeans import kmeans
from hf_trainplus.decisions.strategies.label_values import ClassLabels
from hf_trainplus.decisions.strategies.stratified import mean_by_stratum
from hf_trainplus.decisions.strategies.subset_value import Subset
from hf_trainplus.results import Float64Array

_USUAL_NAMES = ("length", "input_ids", "text", "sentence")
_ROWS_A_STRATUM = 4


@dataclass(frozen=True)
class DiversityStrategy:
    """Draws within clusters of embeddings or features; the clusters are strata, so that intervals stay valid.

    It does not pick the most different rows: a set of outliers stands for nothing, and no interval holds for it.

    Args:
        features: (N,) or (N, d) embeddings or features, or names of columns: numbers and vectors (lists of floats of
            one length, lists of fixed length) are taken as they are, texts and other lists by their length. None takes
            the first of ``length``, ``input_ids``, ``text``, ``sentence``.
        clusters: number of clusters, >= 1; fewer are made when a cluster would get under four rows.
        allocation: ``"proportional"``, ``"equal"`` or ``"neyman"``.
        expected_deviation: (N,) standard deviation expected of each row's result, for ``"neyman"``.

    Example:
        >>> texts = {"text": ["short"] * 90 + ["a much longer text than the others"] * 10}
        >>> subset = DiversityStrategy(clusters=2).select(DatasetColumns(texts), 20, seed=0)
        >>> int((subset.indices >= 90).sum())
        2
    """

    features: npt.ArrayLike | str | Sequence[str] | None = None
    clusters: int = 10
    allocation: str = "proportional"
    expected_deviation: npt.ArrayLike | None = None

    def select(self, columns: DatasetColumns, size: int, *, seed: int) -> Subset:
        """Draw ``size`` rows; the seed fixes them.

        Raises:
            ValueError: no features found, values that are not finite, or not one row of features a row.
        """
        if self.clusters < 1:
            raise ValueError(f"clusters is {self.clusters}; allowed are whole numbers >= 1.")
        features, described = self._features(columns)
        count = min(self.clusters, max(1, size // _ROWS_A_STRATUM))
        _, codes = np.unique(kmeans(features, count, seed=seed), return_inverse=True)
        labels = ClassLabels(codes.astype(np.uint16), int(codes.max()) + 1)
        deviation = mean_by_stratum(self.expected_deviation, labels)
        method = f"diversity, {labels.count} clusters of {described}, {self.allocation}"
        return draw_strata(
            labels.codes, size, seed=seed, method=method, allocation=self.allocation, deviation=deviation
        )

    def _features(self, columns: DatasetColumns) -> tuple[Float64Array, str]:
        names = _feature_names(self.features, columns)
        if names is None:
            table, described = np.asarray(self.features, dtype=np.float64), "the given features"
        else:
            table = np.concatenate([_numbers(columns.read(name), name) for name in names], axis=1)
            described = ", ".join(names)
        table = table.reshape(len(table), -1)
        if len(table) != len(columns):
            raise ValueError(f"features have {len(table)} rows and the dataset {len(columns)}; give one row a row.")
        if not bool(np.isfinite(table).all()):
            raise ValueError("features hold NaN or infinite values; fill them first, no cluster can hold them.")
        return table, described


def _feature_names(features: Any, columns: DatasetColumns) -> list[str] | None:
    """Names of the columns to read, or None when the features are values."""
    if isinstance(features, str):
        return [features]
    if features is not None:
        named = isinstance(features, (list, tuple)) and all(isinstance(name, str) for name in features)
        return list(features) if named else None
    for name in _USUAL_NAMES:
        if name in columns.names:
            return [name]
    raise ValueError(
        f"strategy='diversity' found none of {', '.join(_USUAL_NAMES)} in {columns.names}; give features= an array "
        "with one entry a row, or column names."
    )


def _numbers(column: Any, name: str) -> Float64Array:
    """(N, d) numbers: the value itself, a vector, or the length of a text or list; a missing one has length 0."""
    array = as_arrow(column)
    if array is None:
        raise ValueError(f"column {name!r} mixes kinds, e.g. {as_objects(column[:3])}; give features= as an array.")
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    kind = array.type
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        lengths = pc.fill_null(pc.utf8_length(array), 0)
    elif kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        vectors = _vectors(array)
        if vectors is not None:
            return vectors
        lengths = pc.fill_null(pc.list_value_length(array), 0)
    else:
        return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.float64)[:, None]
    # lengths spread over orders of magnitude; on a log scale short and long rows both get clusters
    return np.asarray(np.log1p(np.asarray(lengths, dtype=np.float64)), dtype=np.float64)[:, None]


def _vectors(lists: Any) -> Float64Array | None:
    """(N, d) entries of lists that are vectors, a missing one NaN; None for token ids and the like."""
    import pyarrow.types as kinds

    values, kind = lists.flatten(), lists.type.value_type
    present = ~np.asarray(lists.is_null())
    width = len(values) // max(int(present.sum()), 1)
    lengths = np.asarray(lists.value_lengths().fill_null(0))
    numbers = kinds.is_floating(kind) or (kinds.is_fixed_size_list(lists.type) and kinds.is_integer(kind))
    if not numbers or not width or bool((lengths[present] != width).any()):
        return None
    table = np.full((len(lists), width), np.nan)
    table[present] = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64).reshape(-1, width)
    return table
