"""Corpus BLEU as the evaluate library's ``bleu`` defines it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hf_trainplus.evaluation.metrics.base import Float64Array, require
from hf_trainplus.evaluation.metrics.ngrams import NgramMetric, brevity_penalty, ngram_precisions
from hf_trainplus.evaluation.metrics.texts import Decoder


class Bleu(NgramMetric):
    """Corpus BLEU of the tensorflow/nmt script behind the evaluate library's ``bleu``, 0 to 1.

    It differs from ``sacrebleu`` in scale, in smoothing (none, so that an order without a match gives 0) and in the
    reference length (the shortest of several).

    Args:
        max_order: longest n-gram, >= 1.
        smooth: add 1 to the matches and the n-grams of every order.
        tokenizer: decodes ids, see ``TextMetric``; words are split by sacrebleu's ``13a``.
        postprocess: see ``TextMetric``.

    Raises:
        ValueError: ``max_order`` is below 1.

    Logged keys: ``bleu`` (0 to 1), ``brevity_penalty`` (0 to 1), ``length_ratio``, ``translation_length``,
    ``reference_length`` (tokens), ``precisions_1`` to ``precisions_{max_order}`` (0 to 1).

    Example:
        >>> metric = Bleu()
        >>> metric.update(["the cat sat on the mat"], ["the cat sat on a mat"])
        >>> round(metric.compute()["bleu"], 6)
        0.537285
    """

    name = "bleu"

    def __init__(
        self,
        max_order: int = 4,
        smooth: bool = False,
        tokenizer: Decoder | None = None,
        postprocess: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__(tokenizer, postprocess)
        require("sacrebleu.metrics", self.name)
        if max_order < 1:
            raise ValueError(f"bleu was given max_order={max_order}; give the length of the longest n-gram, 1 or more.")
        self.max_order = max_order
        self.smooth = smooth

    @property
    def statistics(self) -> int:
        """2 + 2 * max_order columns: translation length, reference length, matches, n-grams."""
        return 2 + 2 * self.max_order

    def _scorer(self) -> Any:
        return _shortest_reference_bleu(self.max_order)

    def from_totals(self, totals: Float64Array) -> dict[str, float]:
        """Return the score and its parts from summed counts (2 + 2 * max_order,)."""
        sums = np.asarray(totals, dtype=np.float64)
        matches, ngrams = sums[2 : 2 + self.max_order] + self.smooth, sums[2 + self.max_order :] + self.smooth
        mean, precisions = ngram_precisions(
            self._scorer(), matches.tolist(), ngrams.tolist(), max_ngram_order=self.max_order
        )
        length, reference_length = float(sums[0]), float(sums[1])
        penalty = brevity_penalty(length, reference_length)
        values = {
            "bleu": penalty * mean / 100 if sums.any() else float("nan"),
            "brevity_penalty": penalty,
            "length_ratio": length / reference_length if reference_length else float("nan"),
            "translation_length": length,
            "reference_length": reference_length,
        }
        return values | {f"precisions_{order}": value / 100 for order, value in enumerate(precisions, 1)}


@lru_cache(maxsize=8)
def _shortest_reference_bleu(max_order: int) -> Any:
    bleu = require("sacrebleu.metrics", "bleu").BLEU

    class ShortestReferenceBleu(bleu):  # type: ignore[misc,valid-type]
        """BLEU whose reference length is the shortest of the row's references."""

        def _get_closest_ref_len(self, hyp_len: int, ref_lens: Sequence[int]) -> int:
            return min(ref_lens)

    return ShortestReferenceBleu(max_ngram_order=max_order, force=True)
