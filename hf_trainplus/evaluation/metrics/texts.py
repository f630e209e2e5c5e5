"""Texts as metrics take them: strings, or ids that are decoded without a negative id ever reaching the decoder."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from hf_trainplus.evaluation.metrics.base import AdditiveMetric, Float64Array
from hf_trainplus.evaluation.metrics.forms import to_numpy


class Decoder(Protocol):
    """What is asked of a tokenizer."""

    def batch_decode(self, sequences: Any, /, *, skip_special_tokens: bool) -> list[str]:
        """Turn rows of ids into texts."""


class TextMetric(AdditiveMetric):
    """A metric of predicted and reference texts.

    Predictions and references are each strings, or ids (n, length) as a batch brings them, which ``tokenizer`` decodes
    (negative ids such as the padding -100 are dropped first, special tokens are skipped). References may be lists of
    several texts a row where the metric allows it.

    Args:
        tokenizer: anything with ``batch_decode``; needed for ids only, and filled in by ``bind``.
        postprocess: applied to every text before it is scored, e.g. ``str.strip``.
    """

    allows_several_references = False

    def __init__(self, tokenizer: Decoder | None = None, postprocess: Callable[[str], str] | None = None) -> None:
        self.tokenizer = tokenizer
        self.postprocess = postprocess
        self.primary = self.name

    def example_statistics(self, predictions: Any, references: Any) -> Float64Array:
        """Return the (n, k) additive statistics of each row.

        Raises:
            ValueError: ids without a tokenizer, unequal numbers of rows, or several references where one is allowed.
        """
        predicted, true = self._texts(predictions, "predictions"), self._texts(references, "references")
        if len(predicted) != len(true):
            raise ValueError(
                f"{self.name} was given {len(predicted)} predictions and {len(true)} references; give one each a row."
            )
        several = next((row for row in true if not isinstance(row, str)), None)
        if several is not None and not self.allows_several_references:
            raise ValueError(
                f"{self.name} was given several references for a row, e.g. {several!r}; give one text a row."
            )
        return self._row_statistics(predicted, [[row] if isinstance(row, str) else row for row in true])

    @abstractmethod
    def _row_statistics(self, predictions: list[str], references: list[list[str]]) -> Float64Array:
        """Return (n, k) statistics of texts; n may be 0."""

    def _texts(self, values: Any, what: str) -> list[Any]:
        rows = values.tolist() if isinstance(values, np.ndarray) and values.dtype.kind in "UO" else values
        first = next(iter(rows), "") if isinstance(rows, (list, tuple)) else None
        is_text = isinstance(first, str) or (
            isinstance(first, (list, tuple)) and all(isinstance(t, str) for t in first)
        )
        if not is_text or (isinstance(first, (list, tuple)) and not first):
            rows = self._decoded(values, what)
        clean = self.postprocess or str
        return [clean(row) if isinstance(row, str) else [clean(text) for text in row] for row in rows]

    def _decoded(self, values: Any, what: str) -> list[str]:
        if self.tokenizer is None:
            raise ValueError(
                f"{self.name} was given {what} as ids and knows no tokenizer; give texts, or "
                f'load_metric("{self.name}", tokenizer=tokenizer).'
            )
        rows = [without_negative_ids(row) for row in values]
        return list(self.tokenizer.batch_decode(rows, skip_special_tokens=True))


def without_negative_ids(row: Any) -> list[int]:
    """Drop masked positions: a decoder overflows or fails on a negative id."""
    ids = to_numpy(row)
    return [int(token) for token in ids[ids >= 0]]


def rows_of(statistics: Sequence[Sequence[float]], columns: int) -> Float64Array:
    """Stack rows of statistics to (n, columns), also when there are none."""
    return np.asarray(statistics, dtype=np.float64).reshape(len(statistics), columns)
