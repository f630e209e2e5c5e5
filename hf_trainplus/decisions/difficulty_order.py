"""Easy first, then hard: an order of evaluation in which every prefix knows what it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.estimate import Estimate, estimate
from hf_trainplus.decisions.strategies.allocation import largest_remainder, quotas
from hf_trainplus.decisions.strategies.difficulty import (
    expected_loss_deviation,
    expected_score_deviation,
    loss_strata,
    losses_of_results,
)
from hf_trainplus.decisions.strategies.label_values import ClassLabels
from hf_trainplus.decisions.strategies.stratified import mean_by_stratum
from hf_trainplus.decisions.strategies.subset_value import Subset
from hf_trainplus.results import ExampleResults, Float64Array, Int64Array

_LOOKS = (0.02, 0.03, 0.045, 0.07, 0.10, 0.15, 0.22, 0.32, 0.45, 0.60, 0.75, 0.90, 1.0)
_FEWEST_ROWS = 100
_ROWS_A_STRATUM = 4
_EXPECTED = {"loss": expected_loss_deviation, "score": expected_score_deviation}


@dataclass(frozen=True)
class DifficultyOrder:
    """An order of all rows: a thin sample of the easy ones and a dense one of the hard ones, look after look.

    Within a look the easy rows come first. The first look already holds rows of every stratum, so that no prefix from
    there on is an easy one; a prefix is weighted by stratum and never reported as the whole. The order does not say
    when to stop.

    Args:
        order: (N,) dataset positions in the order of evaluation.
        strata: (N,) stratum of each dataset position, 0 the easiest.
        looks: sizes of the prefixes at which all strata have their share, ascending; the last is N.

    Example:
        >>> found = difficulty_order(np.linspace(0.0, 3.0, 1000))
        >>> first = found.prefix(found.looks[0])
        >>> len(first), first.n_total, bool((first.indices >= 500).mean() > 0.6)
        (100, 1000, True)
    """

    order: Int64Array
    strata: Int64Array
    looks: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.order)

    def prefix(self, size: int) -> Subset:
        """Return the first rows with the weights that make them stand for all.

        Args:
            size: number of rows, from the first look to N.

        Returns:
            The subset; within a stratum the weights are alike, since its rows come in random order.

        Raises:
            ValueError: a size outside that range; under the first look some strata have no row.
        """
        if not self.looks[0] <= size <= len(self) or size != int(size):
            raise ValueError(
                f"size is {size}; allowed are whole numbers from {self.looks[0]}, the smallest prefix that stands for "
                f"all rows since easy rows alone say nothing about hard ones, to {len(self)}."
            )
        size = int(size)
        rows = np.sort(self.order[:size])
        strata = self.strata[rows]
        sizes = np.bincount(self.strata)
        taken = np.bincount(strata, minlength=len(sizes))
        method = f"the first {size} of {len(self)} rows by difficulty"
        return Subset(rows, (sizes / np.maximum(taken, 1))[strata], strata, method)

    def estimate(self, results: ExampleResults, metric: str = "loss", *, confidence: float = 0.95) -> Estimate:
        """Estimate a metric of all rows from the results of a prefix.

        Args:
            results: results of the first ``len(results)`` rows of the order.
            metric: ``"loss"``, ``"perplexity"`` or the name of a score.
            confidence: level of the interval, in (0, 1).

        Returns:
            The estimate; ``exact`` only when the results hold all rows.

        Raises:
            ValueError: rows that are not that prefix.
        """
        return estimate(results, metric, confidence=confidence, subset=self.prefix(len(results)))


def difficulty_order(
    reference_loss: npt.ArrayLike | ExampleResults,
    *,
    expected: str = "loss",
    strata: int = 10,
    looks: Sequence[float] = _LOOKS,
    seed: int = 0,
) -> DifficultyOrder:
    """Order rows by what a reference checkpoint found hard.

    Args:
        reference_loss: (N,) loss of each row under the reference, in nats, or the results of a full evaluation; NaN and
            infinite ones are the hardest.
        expected: what will be estimated: ``"loss"``, or ``"score"`` for right or wrong.
        strata: number of strata of difficulty, >= 1.
        looks: ascending shares of the rows, the last 1.0; the first look has at least 100 rows, four a stratum.
        seed: seed of the random order within strata.

    Returns:
        The order; the same arguments give the same order in every process.

    Raises:
        ValueError: looks that do not ascend to 1.0, an unknown ``expected``, or no loss a row.

    Source:
        Neyman allocation at each look with a floor of 0.15 of the largest rate.

    Example:
        >>> difficulty_order([0.1, 0.2, 2.0, 3.0], strata=2).order.size
        4
    """
    if not looks or looks[-1] != 1.0 or any(not 0 < low < high for low, high in pairwise(looks)):
        raise ValueError(f"looks are {tuple(looks)}; allowed are ascending shares above 0 that end in 1.0.")
    if expected not in _EXPECTED:
        raise ValueError(f"expected is {expected!r}; allowed are 'loss' and 'score'.")
    loss = _losses(reference_loss)
    labels = loss_strata(loss, strata)
    deviation = mean_by_stratum(_EXPECTED[expected](loss), labels)
    order, sizes = _order(labels, deviation, looks, np.random.default_rng(seed))
    return DifficultyOrder(order, labels.codes.astype(np.int64), sizes)


def _losses(reference: npt.ArrayLike | ExampleResults) -> Float64Array:
    if isinstance(reference, ExampleResults):
        return losses_of_results(reference, len(reference))
    loss = np.asarray(reference, dtype=np.float64)
    if loss.ndim != 1 or not len(loss):
        raise ValueError(f"reference_loss has shape {loss.shape}; give one loss a row, e.g. trainer.example_results.")
    return loss


def _order(
    labels: ClassLabels, deviation: Float64Array | None, looks: Sequence[float], generator: np.random.Generator
) -> tuple[Int64Array, tuple[int, ...]]:
    """Rows sorted by look, within it by stratum, within that at random; with the rows there are after each look."""
    sizes = np.bincount(labels.codes, minlength=labels.count).astype(np.int64)
    total = int(sizes.sum())
    rank = _random_ranks(labels, sizes, generator)
    look_of = np.full(total, len(looks), np.int64)
    taken = np.zeros(len(sizes), np.int64)
    after = []
    fewest = max(_FEWEST_ROWS, _ROWS_A_STRATUM * len(sizes))
    for look, share in enumerate(looks):
        size = min(total, max(round(share * total), fewest))
        wanted = largest_remainder(quotas(sizes, size, "neyman", deviation), size)
        taken = np.maximum(taken, wanted)
        look_of[(rank < taken[labels.codes]) & (look_of == len(looks))] = look
        after.append(int(taken.sum()))
    return np.lexsort((rank, labels.codes, look_of)), tuple(sorted(set(after)))


def _random_ranks(labels: ClassLabels, sizes: Int64Array, generator: np.random.Generator) -> Int64Array:
    """Place of each row in its stratum's random order."""
    shuffled = generator.permutation(len(labels.codes))
    grouped = shuffled[np.argsort(labels.codes[shuffled], kind="stable")]
    rank = np.empty(len(grouped), np.int64)
    rank[grouped] = np.arange(len(grouped)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank
