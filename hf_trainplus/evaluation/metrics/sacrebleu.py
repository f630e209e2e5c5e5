"""Corpus BLEU as sacrebleu defines it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from hf_trainplus.evaluation.metrics.base import Float64Array, require
from hf_trainplus.evaluation.metrics.ngrams import NgramMetric, brevity_penalty, ngram_precisions
from hf_trainplus.evaluation.metrics.texts import Decoder


class SacreBleu(NgramMetric):
    """Corpus BLEU as sacrebleu computes it, 0 to 100.

    It warns of no tokenized input (``force``), and its sums are those of the corpus, never a mean over sentences.

    Args:
        smooth_method: ``exp``, ``floor``, ``add-k`` or ``none``.
        smooth_value: value for ``floor`` and ``add-k``.
        lowercase: compare in lower case.
        tokenize: name of a sacrebleu tokenizer; None for ``13a``.
        use_effective_order: leave out n-gram orders without a match.
        tokenizer: see ``TextMetric``.
        postprocess: see ``TextMetric``.

    Raises:
        ValueError: an unknown smoothing method or tokenizer.

    Logged keys: ``sacrebleu`` (0 to 100; ``score`` in the evaluate library), ``bp`` (0 to 1), ``sys_len``, ``ref_len``
    (tokens), ``precisions_1`` to ``precisions_4`` (0 to 100).

    Example:
        >>> metric = SacreBleu()
        >>> metric.update(["the cat sat on the mat"], [["the cat sat on a mat"]])
        >>> round(metric.compute()["sacrebleu"], 4)
        53.7285
    """

    name = "sacrebleu"

    def __init__(
        self,
        smooth_method: str = "exp",
        smooth_value: float | None = None,
        lowercase: bool = False,
        tokenize: str | None = None,
        use_effective_order: bool = False,
        tokenizer: Decoder | None = None,
        postprocess: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__(tokenizer, postprocess)
        bleu = require("sacrebleu.metrics", self.name).BLEU
        if smooth_method not in bleu.SMOOTH_DEFAULTS or tokenize not in {None, *bleu.TOKENIZERS}:
            raise ValueError(
                f"sacrebleu was given smooth_method={smooth_method!r} and tokenize={tokenize!r}; allowed are "
                f"{', '.join(bleu.SMOOTH_DEFAULTS)} and {', '.join(bleu.TOKENIZERS)}."
            )
        self.smooth_method = smooth_method
        self.smooth_value = smooth_value
        self.lowercase = lowercase
        self.tokenize = tokenize
        self.use_effective_order = use_effective_order

    @property
    def statistics(self) -> int:
        """Ten columns: system length, reference length, 4 matches, 4 n-grams."""
        return 10

    def _scorer(self) -> Any:
        return _bleu(self.lowercase, self.tokenize)

    def from_totals(self, totals: Float64Array) -> dict[str, float]:
        """Return the score and its parts from summed counts (10,)."""
        sums = [float(value) for value in totals]
        mean, precisions = ngram_precisions(
            self._scorer(),
            sums[2:6],
            sums[6:10],
            smooth_method=self.smooth_method,
            smooth_value=self.smooth_value,
            effective_order=self.use_effective_order,
        )
        penalty = brevity_penalty(sums[0], sums[1])
        score = penalty * mean if any(sums) else float("nan")
        parts = {self.primary: score, "bp": penalty, "sys_len": sums[0], "ref_len": sums[1]}
        return parts | {f"precisions_{order}": value for order, value in enumerate(precisions, 1)}


@lru_cache(maxsize=8)
def _bleu(lowercase: bool, tokenize: str | None) -> Any:
    return require("sacrebleu.metrics", "sacrebleu").BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
