"""Per-class counts of right, predicted and true labels, for plain classes and for several labels a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.results import Float64Array, Int64Array


class LabelCounts(Protocol):
    """What F1 needs of the labels: totals a class, and a row's part in any weighted sum of them."""

    names: list[Any]

    def totals(self, design: SampleDesign) -> tuple[Float64Array, Float64Array]:
        """Return (K,) weighted counts of right labels, and of predicted plus true labels."""
        ...

    def rows(self, of_right: Float64Array, of_all: Float64Array) -> Float64Array:
        """Return (n,) each row's right labels times ``of_right`` plus its predicted and true ones times ``of_all``."""
        ...


@dataclass(frozen=True)
class PlainLabels:
    """One predicted and one true class a row, as codes into ``names``."""

    predicted: Int64Array
    true: Int64Array
    names: list[Any]

    def totals(self, design: SampleDesign) -> tuple[Float64Array, Float64Array]:
        """Count over the full set."""
        size, weights = len(self.names), design.weights
        right = np.bincount(self.true, weights=weights * (self.true == self.predicted), minlength=size)
        every = np.bincount(self.true, weights=weights, minlength=size)
        every = every + np.bincount(self.predicted, weights=weights, minlength=size)
        return right.astype(np.float64), every.astype(np.float64)

    def rows(self, of_right: Float64Array, of_all: Float64Array) -> Float64Array:
        """Weigh each row's labels."""
        right = np.where(self.true == self.predicted, of_right[self.true], 0.0)
        return np.asarray(right + of_all[self.true] + of_all[self.predicted], dtype=np.float64)


@dataclass(frozen=True)
class FlagLabels:
    """Several labels a row, as (n, K) zeros and ones."""

    predicted: Float64Array
    true: Float64Array
    names: list[Any]

    def totals(self, design: SampleDesign) -> tuple[Float64Array, Float64Array]:
        """Count over the full set."""
        right = design.weights @ (self.predicted * self.true)
        return right, design.weights @ (self.predicted + self.true)

    def rows(self, of_right: Float64Array, of_all: Float64Array) -> Float64Array:
        """Weigh each row's labels."""
        right = (self.predicted * self.true) @ of_right
        return np.asarray(right + (self.predicted + self.true) @ of_all, dtype=np.float64)


def label_counts(predictions: npt.ArrayLike, references: npt.ArrayLike) -> PlainLabels | FlagLabels:
    """Read predicted and true labels.

    Args:
        predictions: (n,) classes of any kind, or (n, K) zeros and ones.
        references: the same for the truth.

    Returns:
        The counts; the classes are those that occur, in sorted order, or the K columns.

    Raises:
        ValueError: shapes that differ, or two-dimensional values that are not zeros and ones.
    """
    predicted, true = np.asarray(predictions), np.asarray(references)
    if predicted.shape != true.shape or predicted.ndim not in (1, 2):
        raise ValueError(
            f"predictions {predicted.shape} and references {true.shape}: allowed are equal shapes (n,) or (n, K)."
        )
    if predicted.ndim == 1:
        names, codes = np.unique(np.concatenate([predicted, true]), return_inverse=True)
        return PlainLabels(codes[: len(true)], codes[len(true) :], names.tolist())
    if not bool((np.isin(predicted, (0, 1)) & np.isin(true, (0, 1))).all()):
        raise ValueError("two-dimensional labels hold values other than 0 and 1; apply the threshold first.")
    return FlagLabels(predicted.astype(np.float64), true.astype(np.float64), list(range(true.shape[1])))
