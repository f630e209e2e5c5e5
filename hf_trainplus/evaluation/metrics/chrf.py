"""Character n-gram F-score."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from hf_trainplus.evaluation.metrics.base import Float64Array, require
from hf_trainplus.evaluation.metrics.ngrams import NgramMetric
from hf_trainplus.evaluation.metrics.texts import Decoder


class ChrF(NgramMetric):
    """Character n-gram F-score (chrF, chrF++) as sacrebleu computes it over a corpus, 0 to 100.

    Args:
        char_order: longest character n-gram.
        word_order: longest word n-gram; 0 for chrF, 2 for chrF++.
        beta: weight of recall against precision.
        lowercase: compare in lower case.
        whitespace: count white space.
        eps_smoothing: smooth as the chrF++ script does.
        tokenizer: see ``TextMetric``.
        postprocess: see ``TextMetric``.

    Logged keys: ``chrf`` (0 to 100; ``score`` in the evaluate library).

    Example:
        >>> metric = ChrF()
        >>> metric.update(["the cat sat"], ["the cat sits"])
        >>> round(metric.compute()["chrf"], 4)
        61.0345
    """

    name = "chrf"

    def __init__(
        self,
        char_order: int = 6,
        word_order: int = 0,
        beta: int = 2,
        lowercase: bool = False,
        whitespace: bool = False,
        eps_smoothing: bool = False,
        tokenizer: Decoder | None = None,
        postprocess: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__(tokenizer, postprocess)
        require("sacrebleu.metrics", self.name)
        self.char_order = char_order
        self.word_order = word_order
        self.beta = beta
        self.lowercase = lowercase
        self.whitespace = whitespace
        self.eps_smoothing = eps_smoothing

    @property
    def statistics(self) -> int:
        """Three columns an order: n-grams of the prediction, of the reference, and matches."""
        return 3 * (self.char_order + self.word_order)

    def _scorer(self) -> Any:
        return _chrf(self.char_order, self.word_order, self.beta, self.lowercase, self.whitespace, self.eps_smoothing)

    def from_totals(self, totals: Float64Array) -> dict[str, float]:
        """Return the score from summed counts (k,)."""
        sums = [float(value) for value in totals]
        score = self._scorer()._compute_score_from_stats(sums).score if any(sums) else float("nan")
        return {self.primary: float(score)}


@lru_cache(maxsize=8)
def _chrf(char: int, word: int, beta: int, lowercase: bool, whitespace: bool, eps_smoothing: bool) -> Any:
    return require("sacrebleu.metrics", "chrf").CHRF(char, word, beta, lowercase, whitespace, eps_smoothing)
