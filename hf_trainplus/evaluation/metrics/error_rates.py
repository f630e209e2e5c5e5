"""Word and character error rate: edits over reference length, counted by jiwer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from hf_trainplus.evaluation.metrics.base import Float64Array, ratio, require
from hf_trainplus.evaluation.metrics.texts import Decoder, TextMetric, rows_of


class _ErrorRate(TextMetric):
    greater_is_better = False

    def __init__(self, tokenizer: Decoder | None = None, postprocess: Callable[[str], str] | None = None) -> None:
        super().__init__(tokenizer, postprocess)
        self._jiwer()

    @property
    def statistics(self) -> int:
        """Two columns: edits, reference length."""
        return 2

    def _jiwer(self) -> Any:
        return require("jiwer", self.name)

    @abstractmethod
    def _aligned(self, reference: str, prediction: str) -> Any:
        """Return jiwer's counts of hits, substitutions, deletions and insertions."""

    def _row_statistics(self, predictions: list[str], references: list[list[str]]) -> Float64Array:
        rows = []
        for text, targets in zip(predictions, references, strict=True):
            counts = self._aligned(targets[0], text)
            kept_or_lost = counts.substitutions + counts.deletions
            rows.append([kept_or_lost + counts.insertions, kept_or_lost + counts.hits])
        return rows_of(rows, 2)

    def primary_from_totals(self, totals: Float64Array) -> Float64Array:
        """Return edits over reference length."""
        return ratio(totals[..., 0], totals[..., 1])


class WordErrorRate(_ErrorRate):
    """Word edits over reference words of the whole corpus (jiwer's ``process_words``).

    It is no mean over rows, may exceed 1, and is NaN where all references are empty. Words are what white space splits;
    it changes neither case nor punctuation (``postprocess`` may).

    Logged keys: ``wer`` (0 upwards).

    Example:
        >>> metric = WordErrorRate()
        >>> metric.update(["the cat sat", "yes"], ["the cat sat down", "no"])
        >>> metric.compute()
        {'wer': 0.4}
    """

    name = "wer"

    def _aligned(self, reference: str, prediction: str) -> Any:
        return self._jiwer().process_words(reference, prediction)


class CharacterErrorRate(_ErrorRate):
    """Character edits over reference characters of the whole corpus (jiwer's ``process_characters``).

    It is no mean over rows, may exceed 1, and is NaN where all references are empty. Spaces inside a text count.

    Logged keys: ``cer`` (0 upwards).

    Example:
        >>> metric = CharacterErrorRate()
        >>> metric.update(["abd"], ["abcd"])
        >>> metric.compute()
        {'cer': 0.25}
    """

    name = "cer"

    def _aligned(self, reference: str, prediction: str) -> Any:
        return self._jiwer().process_characters(reference, prediction)
