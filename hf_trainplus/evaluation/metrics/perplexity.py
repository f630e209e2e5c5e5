"""Perplexity from losses that are known already."""

from __future__ import annotations

from typing import Any

import numpy as np

from hf_trainplus.evaluation.metrics.base import AdditiveMetric, Float64Array, ratio
from hf_trainplus.evaluation.metrics.score_arrays import score_pairs


class Perplexity(AdditiveMetric):
    """exp of the loss a token, over all tokens; and the mean of the rows' own perplexities.

    It runs no model: ``update`` takes the loss sum and the number of targets of each row. The evaluate library's
    ``perplexity`` reports ``mean_perplexity`` only, which one short odd row can rule.

    Logged keys: ``perplexity`` (1 upwards, infinite where exp overflows), ``mean_perplexity`` (over rows with targets).

    Example:
        >>> metric = Perplexity()
        >>> metric.update([2.0, 6.0], [2, 2])
        >>> {name: round(value, 3) for name, value in metric.compute().items()}
        {'perplexity': 7.389, 'mean_perplexity': 11.402}
    """

    name = "perplexity"
    greater_is_better = False
    form = "losses"

    def __init__(self) -> None:
        self.primary = self.name

    @property
    def statistics(self) -> int:
        """Four columns: loss sum, targets, exp of the row's loss a target, rows with targets."""
        return 4

    def example_statistics(self, predictions: Any, references: Any) -> Float64Array:
        """Return (n, 4) statistics of each row.

        Args:
            predictions: (n,) loss sums, in nats.
            references: (n,) numbers of targets, >= 0; a row with 0 does not count.
        """
        losses, targets = score_pairs(predictions, references, self.name)
        counted = targets > 0
        with np.errstate(over="ignore"):
            own = np.where(counted, np.exp(ratio(losses, targets, 0.0)), 0.0)
        return np.stack([np.where(counted, losses, 0.0), targets, own, counted], axis=1)

    def primary_from_totals(self, totals: Float64Array) -> Float64Array:
        """Return exp of loss sum over targets."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(ratio(totals[..., 0], totals[..., 1])))

    def from_totals(self, totals: Float64Array) -> dict[str, float]:
        """Return both perplexities from sums (4,)."""
        return super().from_totals(totals) | {"mean_perplexity": float(ratio(totals[2], totals[3]))}
