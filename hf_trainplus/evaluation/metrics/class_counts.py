"""Counts a class, the statistics behind precision, recall, F1 and the Matthews correlation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.evaluation.metrics.base import AdditiveMetric, Float64Array, StateArrays
from hf_trainplus.evaluation.metrics.label_arrays import Int64Array, LabelRows

if TYPE_CHECKING:
    from typing_extensions import Self


def class_counts(rows: LabelRows, labels: Int64Array) -> Float64Array:
    """Count a class and a row.

    Args:
        rows: n rows of ids.
        labels: (C,) ascending ids to count; others are passed over.

    Returns:
        (n, C, 3): right predictions, predictions, and targets of each class.
    """

    def tally(ids: Int64Array, where: npt.NDArray[np.bool_]) -> Float64Array:
        column = np.minimum(np.searchsorted(labels, ids), len(labels) - 1)
        keep = where & (labels[column] == ids)
        flat = np.nonzero(keep)[0] * len(labels) + column[keep]
        return np.bincount(flat, minlength=len(ids) * len(labels)).reshape(len(ids), len(labels)).astype(np.float64)

    right = rows.counted & (rows.predictions == rows.references)
    return np.stack(
        [tally(rows.references, right), tally(rows.predictions, rows.counted), tally(rows.references, rows.counted)],
        axis=-1,
    )


def multihot_counts(rows: LabelRows) -> Float64Array:
    """Count a label and a row of 0/1 vectors (n, C): (n, C, 3) as ``class_counts``."""
    predicted, true = rows.predictions != 0, (rows.references != 0) & rows.counted
    predicted = predicted & rows.counted
    return np.stack([predicted & true, predicted, true], axis=-1).astype(np.float64)


class ClassCountMetric(AdditiveMetric):
    """A metric of the counts of each class, whose classes may be found out batch by batch.

    With ``labels`` or ``num_labels`` the counts have a fixed order and are additive statistics; without, the state
    grows with each new class and ``statistics`` is None.

    Args:
        labels: class ids to count, e.g. without a negative class; None for all.
        num_labels: number of classes, ids 0 to num_labels - 1; a class that never occurs does not count. ``bind``
            fills it in from the model.

    Raises:
        ValueError: no label, or a number of labels below 1.
    """

    def __init__(self, labels: Sequence[int] | None = None, num_labels: int | None = None) -> None:
        if labels is not None and len(labels) == 0:
            raise ValueError(f"{self.name} was given labels=[]; give at least one class id, or None for all.")
        if num_labels is not None and num_labels < 1:
            raise ValueError(f"{self.name} was given num_labels={num_labels}; give a number of 1 or more, or None.")
        self.labels = labels
        self.num_labels = num_labels
        self.primary = self.name
        self._found: Int64Array = np.empty(0, dtype=np.int64)

    @property
    def known_labels(self) -> Int64Array | None:
        """(C,) ascending class ids in the order of the statistics; None while they are not known."""
        if self.labels is not None:
            return np.unique(np.asarray(self.labels, dtype=np.int64))
        return None if self.num_labels is None else np.arange(self.num_labels)

    @property
    def statistics(self) -> int | None:
        """Three columns a class; None while the classes are not known."""
        return None if self.known_labels is None else 3 * len(self.known_labels)

    def example_statistics(self, predictions: Any, references: Any) -> Float64Array:
        """Return (n, 3C): right predictions, predictions and targets of each class, class by class.

        Raises:
            ValueError: the classes are not known, or an id is not among ``num_labels``.
        """
        counts = self._row_counts(LabelRows.of(predictions, references, self.name))
        return counts.reshape(len(counts), 3 * counts.shape[1])

    def _row_counts(self, rows: LabelRows) -> Float64Array:
        labels = self.known_labels
        if labels is None:
            raise ValueError(
                f'statistics of a row need the number of classes: load_metric("{self.name}", ..., num_labels=3).'
            )
        self._check_range(rows)
        return class_counts(rows, labels)

    def _check_range(self, rows: LabelRows) -> None:
        if self.labels is not None or self.num_labels is None:
            return
        for ids in (rows.predictions[rows.counted], rows.references[rows.counted]):
            outside = (ids < 0) | (ids >= self.num_labels)
            if outside.any():
                raise ValueError(
                    f"{self.name} met class id {ids[outside][0]}; with num_labels={self.num_labels} allowed are 0 to "
                    f"{self.num_labels - 1} and -100 for a masked target."
                )

    def update(self, predictions: Any, references: Any) -> None:
        """Take in a batch of n rows; see ``Metric.update``."""
        if self.statistics is not None:
            super().update(predictions, references)
            return
        rows = LabelRows.of(predictions, references, self.name)
        if len(rows.labels):
            self._add_found(rows.labels, class_counts(rows, rows.labels).sum(axis=0))

    def _add_found(self, labels: Int64Array, counts: Float64Array) -> None:
        union = np.union1d(self._found, labels)
        totals = np.zeros((len(union), 3))
        if self._totals is not None:
            totals[np.searchsorted(union, self._found)] = self._totals.reshape(-1, 3)
        totals[np.searchsorted(union, labels)] += counts
        self._found, self._totals = union, totals.reshape(-1)

    def reset(self) -> None:
        """Forget all rows and the classes found in them."""
        super().reset()
        self._found = np.empty(0, dtype=np.int64)

    def state_arrays(self) -> StateArrays:
        """Return the sums and the class ids found so far."""
        return super().state_arrays() | {"found": self._found}

    def load_state_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Put back what ``state_arrays`` returned."""
        super().load_state_arrays(arrays)
        self._found = np.asarray(arrays["found"], dtype=np.int64)

    def _merge(self, other: Self) -> None:
        if other._totals is None:
            return
        if self.statistics is not None:
            super()._merge(other)
        else:
            self._add_found(other._found, other._totals.reshape(-1, 3))
