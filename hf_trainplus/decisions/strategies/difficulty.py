"""Rows drawn within strata of difficulty: the loss that an earlier checkpoint had on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.strategies.columns import DatasetColumns
from hf_trainplus.decisions.strategies.drawing import draw_strata
from hf_trainplus.decisions.strategies.label_values import ClassLabels
from hf_trainplus.decisions.strategies.stratified import mean_by_stratum
from hf_trainplus.decisions.strategies.subset_value import Subset
from hf_trainplus.results import ExampleResults, Float64Array, Int64Array

_ROWS_A_STRATUM = 4  # fewer leave no variance to see
_LEAST_LOSS_DEVIATION = 0.02
_CUT_REACH = 0.3  # of a stratum
_CLEAR_GAP = 0.05  # of the probability that the model gives the truth; losses without a gap are far closer


@dataclass(frozen=True)
class DifficultyStrategy:
    """Draws within strata of equal size, from the easiest rows for a reference checkpoint to the hardest.

    It is no "hard subset": easy rows are drawn too, and weights give each stratum its share of the whole. A reference
    at chance level orders nothing, and costs nothing but the gain.

    Args:
        reference_loss: (N,) loss of each row under a reference checkpoint, a column that holds it, or the results of a
            full evaluation. NaN and infinite losses are the hardest stratum.
        strata: number of strata, >= 1; fewer are made when a stratum would get under four rows.
        allocation: ``"proportional"``, ``"equal"`` or ``"neyman"`` (dense where rows vary).

    Example:
        >>> loss = np.linspace(0.0, 3.0, 100)
        >>> strategy = DifficultyStrategy(loss, strata=2, allocation="neyman")
        >>> hard = strategy.select(DatasetColumns(range(100)), 20, seed=0).indices >= 50
        >>> int(hard.sum())
        13
    """

    reference_loss: npt.ArrayLike | str | ExampleResults
    strata: int = 10
    allocation: str = "proportional"

    def select(self, columns: DatasetColumns, size: int, *, seed: int) -> Subset:
        """Draw ``size`` rows; the seed fixes them.

        Raises:
            ValueError: losses that do not cover the dataset, one a row.
        """
        loss = reference_losses(self.reference_loss, columns)
        labels = loss_strata(loss, min(self.strata, max(1, size // _ROWS_A_STRATUM)))
        method = f"difficulty, {labels.count} strata of the reference loss, {self.allocation}"
        deviation = mean_by_stratum(expected_loss_deviation(loss), labels)
        return draw_strata(
            labels.codes, size, seed=seed, method=method, allocation=self.allocation, deviation=deviation
        )


def loss_strata(loss: npt.ArrayLike, strata: int) -> ClassLabels:
    """Cut rows into strata of about equal size by loss; rows with NaN or infinite loss are a last stratum of their own.

    A cut moves by up to 30 % of a stratum to a clear gap in the losses. A stratum that holds a few rows from beyond a
    gap looks uniform in most samples: on a model that always predicts one class, intervals then covered 73 %.

    Args:
        loss: (N,) loss of each row.
        strata: number of strata for the finite losses, >= 1.

    Returns:
        The strata, 0 the easiest.

    Raises:
        ValueError: under one stratum.

    Example:
        >>> loss_strata([0.1, 9.0, float("nan"), 0.2], 2).codes.tolist()
        [0, 1, 2, 0]
    """
    if strata < 1:
        raise ValueError(f"strata is {strata}; allowed are whole numbers >= 1.")
    column = np.asarray(loss, dtype=np.float64)
    finite = np.isfinite(column)
    order = np.argsort(column[finite], kind="stable")
    count = min(strata, max(len(order), 1))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    codes = np.full(len(column), count, np.uint16)
    codes[finite] = np.searchsorted(_cuts(column[finite][order], count), ranks, side="right")
    return ClassLabels(codes, count + int(not finite.all()), "bin")


def _cuts(ascending: Float64Array, count: int) -> Int64Array:
    """First rank of each stratum but the easiest."""
    even = np.round(np.arange(1, count) * len(ascending) / count).astype(np.int64)
    reach = int(_CUT_REACH * len(ascending) / count)
    gaps = np.diff(1 - np.exp(-np.maximum(ascending, 0.0)))
    for at, cut in enumerate(even):
        start = max(int(cut) - 1 - reach, 0)
        nearby = gaps[start : int(cut) + reach]
        if len(nearby) and float(nearby.max()) > _CLEAR_GAP:
            even[at] = start + int(np.argmax(nearby)) + 1
    return even


def expected_loss_deviation(loss: npt.ArrayLike) -> Float64Array:
    """How much a row's loss is expected to change between checkpoints, from one checkpoint's loss: 1 - exp(-loss).

    Args:
        loss: (N,) loss of each row in nats.

    Returns:
        (N,) relative deviations between 0.02 and 1; 1 where the loss is not finite.

    Source:
        1 - exp(-loss) is the chance that the model does not give the truth: rows that it is sure of change least.
    """
    column = np.asarray(loss, dtype=np.float64)
    safe = np.where(np.isfinite(column), np.maximum(column, 0.0), np.inf)
    return np.asarray(np.maximum(1 - np.exp(-safe), _LEAST_LOSS_DEVIATION), dtype=np.float64)


def expected_score_deviation(loss: npt.ArrayLike) -> Float64Array:
    """How much a 0/1 score is expected to vary, from the loss: sqrt(p (1 - p)) with p = 1 - exp(-loss).

    Args:
        loss: (N,) loss of each row in nats.

    Returns:
        (N,) deviations between 0 and 0.5.
    """
    column = np.asarray(loss, dtype=np.float64)
    p = 1 - np.exp(-np.where(np.isfinite(column), np.maximum(column, 0.0), np.inf))
    return np.asarray(np.sqrt(p * (1 - p)), dtype=np.float64)


def reference_losses(source: npt.ArrayLike | str | ExampleResults, columns: DatasetColumns) -> Float64Array:
    """Return one reference loss a row of the dataset.

    Raises:
        ValueError: results or values that do not cover the dataset, one a row.
    """
    if isinstance(source, ExampleResults):
        return losses_of_results(source, len(columns))
    values = np.asarray(columns.read(source) if isinstance(source, str) else source, dtype=np.float64)
    if values.shape != (len(columns),):
        raise ValueError(f"reference_loss has shape {values.shape}, the dataset {len(columns)} rows: give one a row.")
    return values


def losses_of_results(results: ExampleResults, rows: int) -> Float64Array:
    """(N,) loss per target of each row of a full evaluation, in the order of the dataset; 0 without targets.

    Raises:
        ValueError: results that do not cover ``rows`` rows.
    """
    ordered = results.in_dataset_order()
    if not np.array_equal(ordered.index, np.arange(rows)):
        raise ValueError(
            f"the reference results have {len(results)} rows and are not those of all {rows} rows of the dataset; "
            "give a full evaluation."
        )
    counts = np.maximum(ordered.target_count, 1)
    return np.asarray(np.where(ordered.counted, ordered.loss_sum, 0.0) / counts, dtype=np.float64)
