"""Accuracy of class ids, a row or a token at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from hf_trainplus.evaluation.metrics.base import AdditiveMetric, Float64Array, ratio
from hf_trainplus.evaluation.metrics.label_arrays import LabelRows


class Accuracy(AdditiveMetric):
    """Share of targets whose class id is right (scikit-learn's ``accuracy_score``).

    References of two dimensions are tokens: targets of -100 are dropped, and every other token counts once. It takes
    no sample weights.

    Args:
        multilabel: rows are 0/1 vectors (n, C) and a row is right when all of it is (subset accuracy).

    Logged keys: ``accuracy`` (0 to 1).

    Example:
        >>> metric = Accuracy()
        >>> metric.update([1, 0, 1], [1, 1, 1])
        >>> metric.update([[0, 2]], [[2, -100]])
        >>> metric.compute()
        {'accuracy': 0.5}
        >>> metric.example_scores([1, 0], [1, 1]).tolist()
        [1.0, 0.0]
    """

    name = "accuracy"
    per_example = True

    def __init__(self, multilabel: bool = False) -> None:
        self.multilabel = multilabel
        self.primary = self.name
        self.form = "multihot" if multilabel else "argmax"

    @property
    def statistics(self) -> int:
        """Two columns: right targets, targets."""
        return 2

    def example_statistics(self, predictions: Any, references: Any) -> Float64Array:
        """Return (n, 2): right targets and targets of each row."""
        rows = LabelRows.of(predictions, references, self.name)
        right = (rows.predictions == rows.references) & rows.counted
        if self.multilabel:
            return np.stack([right.all(axis=1), np.ones(len(right))], axis=1).astype(np.float64)
        return np.stack([right.sum(axis=1), rows.counted.sum(axis=1)], axis=1).astype(np.float64)

    def primary_from_totals(self, totals: Float64Array) -> Float64Array:
        """Return right targets over targets."""
        return ratio(totals[..., 0], totals[..., 1])

    def scores_from_statistics(self, statistics: Float64Array) -> Float64Array | None:
        """Return 0/1 a row (n,), or None for tokens, whose accuracy is no plain mean over rows."""
        return super().scores_from_statistics(statistics) if statistics[:, 1].max(initial=0) <= 1 else None


class TokenAccuracy(Accuracy):
    """Share of unmasked tokens whose predicted id is right; every token counts once, whatever its row.

    Args:
        shift: predictions at position t are for the token at t + 1, as a causal language model gives them.

    Logged keys: ``token_accuracy`` (0 to 1).

    Example:
        >>> metric = TokenAccuracy(shift=True)
        >>> metric.update([[5, 6, 9]], [[-100, 5, 7]])
        >>> metric.compute()
        {'token_accuracy': 0.5}
    """

    name = "token_accuracy"
    per_example = False

    def __init__(self, shift: bool = False) -> None:
        super().__init__()
        self.shift = shift

    def example_statistics(self, predictions: Any, references: Any) -> Float64Array:
        """Return (n, 2): right tokens and tokens of each row."""
        rows = LabelRows.of(predictions, references, self.name)
        if self.shift:
            return super().example_statistics(rows.predictions[:, :-1], rows.references[:, 1:])
        return super().example_statistics(rows.predictions, rows.references)
