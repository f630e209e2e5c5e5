"""ROUGE F-measures, the mean over rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from hf_trainplus.evaluation.metrics.base import Float64Array, ratio, require
from hf_trainplus.evaluation.metrics.texts import Decoder, TextMetric, rows_of

_TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")


class Rouge(TextMetric):
    """Mean F-measure of each ROUGE type as rouge-score computes it a row, 0 to 1.

    The evaluate library reports the median of 1,000 unseeded bootstrap means in place of the mean, which wanders around
    it from call to call, by a fraction of its standard error; row by row the two agree. ``rougeLsum`` splits
    sentences at line breaks and adds none.

    Args:
        rouge_types: ``rouge1`` to ``rouge9``, ``rougeL``, ``rougeLsum``; the primary one is ``rougeL`` where it is
            among them, else the first.
        use_stemmer: stem words (Porter) before they are compared.
        word_tokenizer: splits a text into words; None for rouge-score's own (lower case letters and digits).
        tokenizer: decodes ids, see ``TextMetric``.
        postprocess: see ``TextMetric``.

    Raises:
        ValueError: no type is given.

    Logged keys: one a type, e.g. ``rouge1``, ``rouge2``, ``rougeL``, ``rougeLsum`` (0 to 1).

    Example:
        >>> metric = Rouge(rouge_types=["rouge1", "rougeL"])
        >>> metric.update(["the cat sat"], ["the cat ran off"])
        >>> {name: round(value, 4) for name, value in metric.compute().items()}
        {'rouge1': 0.5714, 'rougeL': 0.5714}
    """

    name = "rouge"
    per_example = True
    allows_several_references = True

    def __init__(
        self,
        rouge_types: Sequence[str] = _TYPES,
        use_stemmer: bool = False,
        word_tokenizer: Callable[[str], list[str]] | None = None,
        tokenizer: Decoder | None = None,
        postprocess: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__(tokenizer, postprocess)
        require("rouge_score.rouge_scorer", self.name)
        if not rouge_types:
            raise ValueError(f"rouge was given no rouge_types; give some of {', '.join(_TYPES)}.")
        self.rouge_types = tuple(rouge_types)
        self.use_stemmer = use_stemmer
        self.word_tokenizer = word_tokenizer
        self.primary = "rougeL" if "rougeL" in self.rouge_types else self.rouge_types[0]

    @property
    def statistics(self) -> int:
        """One column a type, in the order of ``rouge_types``, and the row itself."""
        return len(self.rouge_types) + 1

    def _row_statistics(self, predictions: list[str], references: list[list[str]]) -> Float64Array:
        scorer = _scorer(self.rouge_types, self.use_stemmer, self.word_tokenizer)
        rows = []
        for text, targets in zip(predictions, references, strict=True):
            scores = scorer.score_multi(targets, text)
            rows.append([*(scores[name].fmeasure for name in self.rouge_types), 1.0])
        return rows_of(rows, self.statistics)

    def primary_from_totals(self, totals: Float64Array) -> Float64Array:
        """Return the mean (...) of the primary type of sums (..., k)."""
        return ratio(totals[..., self.rouge_types.index(self.primary)], totals[..., -1])

    def from_totals(self, totals: Float64Array) -> dict[str, float]:
        """Return the mean of each type from sums (k,)."""
        return dict(zip(self.rouge_types, ratio(totals[:-1], totals[-1]).tolist(), strict=True))


class _Words:
    """Gives a function the method that rouge-score asks of a tokenizer."""

    def __init__(self, function: Callable[[str], list[str]]) -> None:
        self.tokenize = function


@lru_cache(maxsize=8)
def _scorer(types: tuple[str, ...], use_stemmer: bool, words: Callable[[str], list[str]] | None) -> Any:
    scorer = require("rouge_score.rouge_scorer", "rouge").RougeScorer
    return scorer(list(types), use_stemmer=use_stemmer, tokenizer=None if words is None else _Words(words))
