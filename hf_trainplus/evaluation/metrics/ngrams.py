"""BLEU and chrF from n-gram counts, which sacrebleu counts and scores."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from hf_trainplus.evaluation.metrics.base import Float64Array
from hf_trainplus.evaluation.metrics.texts import TextMetric, rows_of


class NgramMetric(TextMetric):
    """A metric of sums of n-gram counts over rows.

    The counts of a row come from ``_extract_corpus_statistics`` of sacrebleu's metric classes (2.x), the same call
    that its own ``corpus_score`` makes.
    """

    allows_several_references = True

    @abstractmethod
    def _scorer(self) -> Any:
        """Return sacrebleu's metric object for these options."""

    def _row_statistics(self, predictions: list[str], references: list[list[str]]) -> Float64Array:
        counts = {len(row) for row in references}
        if len(counts) > 1:
            raise ValueError(
                f"{self.name} was given rows of {sorted(counts)} references; give each row the same number of texts."
            )
        if not predictions:
            return rows_of([], self.statistics or 0)
        transposed = [list(column) for column in zip(*references, strict=True)]
        return rows_of(self._scorer()._extract_corpus_statistics(predictions, transposed), self.statistics or 0)

    def primary_from_totals(self, totals: Float64Array) -> Float64Array:
        """Return the score (...) of summed counts (..., k)."""
        flat = np.asarray(totals, dtype=np.float64).reshape(-1, totals.shape[-1])
        scores = [self.from_totals(row)[self.primary] for row in flat]
        return np.asarray(scores).reshape(totals.shape[:-1])


def brevity_penalty(length: float, reference_length: float) -> float:
    """Return BLEU's factor for output shorter than its reference, 0 to 1 (Papineni et al., 2002)."""
    if length >= reference_length:
        return 1.0
    return math.exp(1 - reference_length / length) if length > 0 else 0.0


def ngram_precisions(
    scorer: Any, matches: Sequence[float], ngrams: Sequence[float], **options: Any
) -> tuple[float, list[float]]:
    """Return sacrebleu's geometric mean of the n-gram precisions, and the precisions themselves, all 0 to 100.

    Lengths are left out: sacrebleu prints them as whole numbers and refuses the weighted ones of a sample.
    """
    result = scorer.compute_bleu(list(matches), list(ngrams), 1, 1, **options)
    return float(result.score), [float(value) for value in result.precisions]
