"""Precision, recall and F1 from counts a class, averaged as scikit-learn averages them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hf_trainplus.evaluation.metrics.base import AdditiveMetric, Float64Array, ratio
from hf_trainplus.evaluation.metrics.class_counts import ClassCountMetric, multihot_counts
from hf_trainplus.evaluation.metrics.label_arrays import Int64Array, LabelRows, refuse_multihot

if TYPE_CHECKING:
    from typing_extensions import Self

Average = Literal["binary", "micro", "macro", "weighted", "samples"]
_AVERAGES = ("binary", "micro", "macro", "weighted", "samples")


class PrecisionRecallMetric(ClassCountMetric):
    """What precision, recall and F1 share; it gives no value a class (``average=None``) and takes no sample weights.

    References of two dimensions are tokens: targets of -100 are dropped.

    Args:
        average: ``binary`` scores class ``pos_label`` alone, ``micro`` pools the counts, ``macro`` is the plain mean
            over classes, ``weighted`` weights it by targets, ``samples`` is the mean over rows of 0/1 labels.
        labels: class ids to average over; None for all that occur.
        num_labels: number of classes, see ``ClassCountMetric``.
        pos_label: the class that ``binary`` scores.
        zero_division: value of a class with nothing to divide by, 0 or 1. No warning is given.
        multilabel: rows are 0/1 vectors (n, C).

    Raises:
        ValueError: an unknown average, or options that do not go together.
    """

    def __init__(
        self,
        average: Average = "binary",
        labels: Sequence[int] | None = None,
        num_labels: int | None = None,
        pos_label: int = 1,
        zero_division: float = 0.0,
        multilabel: bool = False,
    ) -> None:
        super().__init__(labels, num_labels)
        if average not in _AVERAGES:
            raise ValueError(f"{self.name} was given average={average!r}; allowed are {', '.join(_AVERAGES)}.")
        if zero_division not in (0.0, 1.0):
            raise ValueError(f"{self.name} was given zero_division={zero_division!r}; allowed are 0 and 1.")
        if (average == "samples" and not multilabel) or (average == "binary" and multilabel):
            raise ValueError(
                f"{self.name} was given average={average!r} with multilabel={multilabel}; rows of 0/1 labels take "
                "multilabel=True and micro, macro, weighted or samples."
            )
        if average == "binary" and labels is not None:
            raise ValueError(f"{self.name} was given labels with average='binary'; name the class by pos_label.")
        self.average = average
        self.pos_label = pos_label
        self.zero_division = zero_division
        self.multilabel = multilabel
        self.per_example = average == "samples"
        self.form = "multihot" if multilabel else "argmax"

    @abstractmethod
    def _score(self, counts: Float64Array) -> Float64Array:
        """Return the score (...) of counts (..., 3)."""

    def bind(self, *, num_labels: int | None = None, **known: Any) -> None:
        """Fill in the number of classes; see ``Metric.bind``.

        Raises:
            ValueError: ``average="binary"`` and more than two classes.
        """
        if self.average == "binary" and num_labels is not None and num_labels > 2:
            raise ValueError(
                f"{self.name} has average='binary' and the model {num_labels} classes; choose one: "
                f'load_metric("{self.name}", average="macro") (or micro, weighted).'
            )
        super().bind(num_labels=num_labels, **known)

    @property
    def known_labels(self) -> Int64Array | None:
        """(C,) class ids in the order of the statistics; None while they are not known."""
        if self.average == "binary":
            return np.asarray([self.pos_label], dtype=np.int64)
        return super().known_labels

    @property
    def statistics(self) -> int | None:
        """Three columns a class, three in all where one pooled score is asked for, two for ``samples``."""
        if self.average in ("micro", "binary"):
            return 3
        return 2 if self.average == "samples" else super().statistics

    def example_statistics(self, predictions: Any, references: Any) -> Float64Array:
        """Return (n, k): right predictions, predictions and targets a class (pooled for micro), class by class.

        ``samples`` has two columns, the row's score and 1.

        Raises:
            ValueError: the classes are not known, an id is not among ``num_labels``, or ``binary`` and a third class.
        """
        rows = LabelRows.of(predictions, references, self.name)
        if self.average == "binary":
            self._check_binary(rows.labels)
        counts = self._row_counts(rows)
        if self.average == "samples":
            return np.stack([self._score(counts.sum(axis=1)), np.ones(len(counts))], axis=1)
        pooled = counts.sum(axis=1, keepdims=True) if self.average == "micro" else counts
        return pooled.reshape(len(counts), 3 * pooled.shape[1])

    def _row_counts(self, rows: LabelRows) -> Float64Array:
        if self.multilabel:
            counts = multihot_counts(rows)
            return counts if self.labels is None else counts[:, self.known_labels]
        if self.average != "micro" or self.labels is not None:
            return super()._row_counts(rows)
        # without a choice of classes the pooled counts need none of them told apart
        self._check_range(rows)
        right = (rows.predictions == rows.references) & rows.counted
        return np.stack([right, rows.counted, rows.counted], axis=-1).astype(np.float64)

    def update(self, predictions: Any, references: Any) -> None:
        """Take in a batch of n rows; see ``Metric.update``.

        Raises:
            ValueError: ``average="binary"`` and a third class, or 0/1 vectors without ``multilabel``.
        """
        if not self.multilabel:
            refuse_multihot(references, self.name, self.num_labels)
        if self.average == "binary":
            labels = LabelRows.of(predictions, references, self.name).labels
            self._note_binary(labels)
        if self.multilabel:
            AdditiveMetric.update(self, predictions, references)
        else:
            super().update(predictions, references)

    def _merge(self, other: Self) -> None:
        if self.multilabel:
            AdditiveMetric._merge(self, other)
        else:
            super()._merge(other)
        if self.average == "binary":
            self._note_binary(other._found)

    def _note_binary(self, labels: Int64Array) -> None:
        self._found = np.union1d(self._found, labels)
        self._check_binary(self._found)

    def _check_binary(self, labels: Int64Array) -> None:
        if len(labels) > 2 or (len(labels) == 2 and self.pos_label not in labels):
            raise ValueError(
                f"{self.name} has average='binary' and pos_label={self.pos_label}, and the classes {labels.tolist()} "
                "occur; set pos_label, or average to micro, macro or weighted."
            )

    def primary_from_totals(self, totals: Float64Array) -> Float64Array:
        """Return the averaged score of counts (..., k)."""
        if self.average == "samples":
            return ratio(totals[..., 0], totals[..., 1])
        counts = totals.reshape(*totals.shape[:-1], -1, 3)
        scores = self._score(counts)
        if self.average in ("binary", "micro"):
            return scores[..., 0]
        keeps_absent = self.labels is not None or self.multilabel
        weight = np.ones(scores.shape) if keeps_absent else (counts[..., 1] + counts[..., 2] > 0).astype(np.float64)
        if self.average == "weighted":
            targets = counts[..., 2]
            weight = np.where(targets.sum(axis=-1, keepdims=True) > 0, targets, weight)
        return ratio((scores * weight).sum(axis=-1), weight.sum(axis=-1))


class Precision(PrecisionRecallMetric):
    """Share of a class's predictions that are right (scikit-learn's ``precision_score``).

    See ``PrecisionRecallMetric`` for the options.

    Logged keys: ``precision`` (0 to 1).

    Example:
        >>> metric = Precision()
        >>> metric.update([1, 1, 0], [1, 0, 1])
        >>> metric.compute()
        {'precision': 0.5}
    """

    name = "precision"

    def _score(self, counts: Float64Array) -> Float64Array:
        return ratio(counts[..., 0], counts[..., 1], self.zero_division)


class Recall(PrecisionRecallMetric):
    """Share of a class's targets that are found (scikit-learn's ``recall_score``).

    See ``PrecisionRecallMetric`` for the options.

    Logged keys: ``recall`` (0 to 1).

    Example:
        >>> metric = Recall(average="macro")
        >>> metric.update([2, 1, 0], [2, 0, 0])
        >>> metric.compute()
        {'recall': 0.5}
    """

    name = "recall"

    def _score(self, counts: Float64Array) -> Float64Array:
        return ratio(counts[..., 0], counts[..., 2], self.zero_division)


class F1(PrecisionRecallMetric):
    """Harmonic mean of precision and recall (scikit-learn's ``f1_score``).

    It is no mean over rows and none over batches: the counts are summed first. See ``PrecisionRecallMetric`` for the
    options.

    Logged keys: ``f1`` (0 to 1).

    Example:
        >>> metric = F1(average="macro", num_labels=3)
        >>> metric.update([0, 1], [0, 0])
        >>> metric.update([2, 2], [2, 2])
        >>> round(metric.compute()["f1"], 4)
        0.5556
    """

    name = "f1"

    def _score(self, counts: Float64Array) -> Float64Array:
        return ratio(2 * counts[..., 0], counts[..., 1] + counts[..., 2], self.zero_division)
