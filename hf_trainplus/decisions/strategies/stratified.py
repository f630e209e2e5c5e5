"""Rows drawn so that every class keeps its share, or gets the rows that its weight makes up for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.strategies.columns import DatasetColumns
from hf_trainplus.decisions.strategies.drawing import draw_strata
from hf_trainplus.decisions.strategies.encoding import encode_labels
from hf_trainplus.decisions.strategies.iterative import draw_label_sets
from hf_trainplus.decisions.strategies.label_values import ClassLabels, LabelSets
from hf_trainplus.decisions.strategies.subset_value import Subset

_USUAL_NAMES = ("label", "labels")
_PROBE_ROWS = 1000
_MOST_GUESSED_LABELS = 200  # lists with more labels than this are token ids of a language model, not classes


@dataclass(frozen=True)
class StratifiedStrategy:
    """Draws each class's share by largest remainder, or by another allocation.

    Labels may be strings, numbers, bools, ClassLabel, missing (a class of their own), continuous (cut into bins of
    equal size), lists and rows of flags (several labels a row, iterative stratification, proportional only). Classes
    worth less than one row share a draw, so that none is left out for good. It does not make intervals much narrower:
    labels explain little of a trained model's losses (2 % of the variance on a recorded AG News run). It removes bad
    luck.

    Args:
        label_column: name, ``"outer.inner"``, or position for rows that are tuples; None takes ``label`` or ``labels``
            when it holds classes, and one stratum otherwise.
        allocation: ``"proportional"``, ``"equal"`` or ``"neyman"``.
        expected_deviation: (N,) standard deviation expected of each row's result, for ``"neyman"``.
        bins: bins of a continuous target.

    Example:
        >>> rows = [{"label": "a"}] * 90 + [{"label": "b"}] * 10
        >>> subset = StratifiedStrategy().select(DatasetColumns(rows), 20, seed=0)
        >>> int((subset.indices >= 90).sum()), float(subset.weights[0])
        (2, 5.0)
    """

    label_column: str | int | None = None
    allocation: str = "proportional"
    expected_deviation: npt.ArrayLike | None = None
    bins: int = 10

    def select(self, columns: DatasetColumns, size: int, *, seed: int) -> Subset:
        """Draw ``size`` rows; the seed fixes them.

        Raises:
            ValueError: a column that is not there, an unknown allocation, or one that does not fit the labels.
            TypeError: a column that holds no labels.
        """
        name = infer_label_column(columns) if self.label_column is None else self.label_column
        if name is None:
            codes, count, method = np.zeros(len(columns), np.uint8), 1, "stratified: no label column, one stratum"
            labels: ClassLabels | LabelSets = ClassLabels(codes, count)
        else:
            labels = encode_labels(columns.read(name), bins=self.bins)
            method = f"stratified by {name!r}"
        if isinstance(labels, LabelSets):
            return self._several_labels(labels, size, seed, method)
        deviation = mean_by_stratum(self.expected_deviation, labels)
        method = method if name is None else f"{method}, {labels.count} strata, {self.allocation}"
        return draw_strata(
            labels.codes, size, seed=seed, method=method, allocation=self.allocation, deviation=deviation
        )

    def _several_labels(self, labels: LabelSets, size: int, seed: int, method: str) -> Subset:
        if self.allocation != "proportional":
            raise ValueError(
                f"allocation is {self.allocation!r} and rows have several labels; allowed is 'proportional' only."
            )
        return draw_label_sets(labels, size, seed=seed, method=f"{method}, {labels.count} labels, iterative")


def infer_label_column(columns: DatasetColumns) -> str | None:
    """Return ``label`` or ``labels`` when the dataset has it and its first rows hold classes, else None."""
    for name in _USUAL_NAMES:
        if name in columns.names and _holds_classes(columns, name):
            return name
    return None


def _holds_classes(columns: DatasetColumns, name: str) -> bool:
    try:
        labels = encode_labels(columns.head(name, _PROBE_ROWS))
    except TypeError:
        return False
    return isinstance(labels, ClassLabels) or labels.count <= _MOST_GUESSED_LABELS


def mean_by_stratum(values: npt.ArrayLike | None, labels: ClassLabels) -> npt.NDArray[np.float64] | None:
    """Mean of a per-row value in each stratum, 0 where a stratum has no row; None without values.

    Raises:
        ValueError: not one value a row.
    """
    if values is None:
        return None
    column = np.asarray(values, dtype=np.float64)
    if column.shape != labels.codes.shape:
        raise ValueError(f"{len(column)} reference values and {len(labels.codes)} rows; give one value a row.")
    counts = np.bincount(labels.codes, minlength=labels.count)
    sums = np.bincount(labels.codes, weights=column, minlength=labels.count)
    return np.asarray(sums / np.maximum(counts, 1), dtype=np.float64)
