"""Matthews correlation with its interval, by linearization on the confusion table."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.estimators.assembly import (
    Bounds,
    linearized_estimate,
    resolve_design,
    without_interval,
)
from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.label_counts import PlainLabels, label_counts
from hf_trainplus.decisions.estimators.proportions import wilson_bounds
from hf_trainplus.decisions.estimators.quantiles import critical_value
from hf_trainplus.decisions.estimators.sampling_error import SamplingError
from hf_trainplus.decisions.estimators.transforms import SCALES
from hf_trainplus.decisions.estimators.uncertainty import Estimate
from hf_trainplus.decisions.estimators.variance import linearized_variance
from hf_trainplus.results import Float64Array


def mcc_interval(
    predictions: npt.ArrayLike,
    references: npt.ArrayLike,
    *,
    n_total: int | None = None,
    design: SampleDesign | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Matthews correlation coefficient with its interval, for two classes or more.

    A constant prediction has no correlation: its value is 0 by convention, as in scikit-learn, without an interval.

    Args:
        predictions: (n,) classes of any kind.
        references: (n,) true classes.
        n_total: rows in the full set when the n rows were drawn at random from it; None when they are the set.
        design: weights, strata and clusters of the rows, in place of n_total.
        confidence: level in (0, 1).

    Returns:
        The estimate, with bounds symmetric on Fisher's scale; where all rows are right, the lower bound is the value
        at the error rate that Wilson's interval leaves open.

    Raises:
        ValueError: shapes that differ, or several labels a row.

    Source:
        Gorodkin 2004, Computational Biology and Chemistry 28; influence by its derivative at each cell.

    Example:
        >>> mcc_interval([1, 1, 0, 0], [1, 1, 0, 0]).value
        1.0
    """
    labels = label_counts(predictions, references)
    if not isinstance(labels, PlainLabels):
        raise ValueError("MCC takes one class a row; give (n,) predictions and references.")
    used = resolve_design(len(labels.true), n_total, design)
    size = len(labels.names)
    cells = np.bincount(labels.true * size + labels.predicted, weights=used.weights, minlength=size**2)
    table = _Table(cells.reshape(size, size).astype(np.float64))
    if table.spread_of_both == 0:
        return without_interval(0.0 if used.n else None, used, confidence, "constant")
    gradient = table.gradient()
    influence = gradient[labels.true, labels.predicted] * float(used.weights.sum())
    value = table.value

    def bounds(error: SamplingError, for_set: bool) -> Bounds:
        found = SCALES["atanh"].bounds(value, error, confidence)
        return found if found is not None or not error.known else _at_the_end(table, used, for_set, confidence)

    return linearized_estimate(
        value, linearized_variance(influence, used), used, confidence, method="MCC, atanh", bounds=bounds
    )


@dataclass(frozen=True)
class _Table:
    """Weighted confusion table: true classes down, predicted across."""

    cells: Float64Array

    @property
    def spread_of_both(self) -> float:
        total = float(self.cells.sum())
        predicted, true = self.cells.sum(axis=0), self.cells.sum(axis=1)
        return float((total**2 - predicted @ predicted) * (total**2 - true @ true))

    @property
    def value(self) -> float:
        predicted, true = self.cells.sum(axis=0), self.cells.sum(axis=1)
        above = float(np.trace(self.cells) * self.cells.sum() - predicted @ true)
        return min(max(above / math.sqrt(self.spread_of_both), -1.0), 1.0)

    def gradient(self) -> Float64Array:
        """Change of the coefficient with each cell."""
        total, right = float(self.cells.sum()), float(np.trace(self.cells))
        predicted, true = self.cells.sum(axis=0), self.cells.sum(axis=1)
        above = np.eye(len(true)) * total + right - predicted[:, None] - true[None, :]
        of_predicted = (total - predicted)[None, :] / (total**2 - predicted @ predicted)
        of_true = (total - true)[:, None] / (total**2 - true @ true)
        return np.asarray(above / math.sqrt(self.spread_of_both) - self.value * (of_predicted + of_true))

    def with_errors(self, rate: float) -> _Table:
        """The same table with this share of each class moved to the other classes, in proportion to their sizes."""
        true = self.cells.sum(axis=1)
        others = np.where(np.eye(len(true)) > 0, 0.0, true[None, :])
        moved = true[:, None] * others / others.sum(axis=1, keepdims=True)
        return _Table(self.cells * (1 - rate) + moved * rate)


def _at_the_end(table: _Table, design: SampleDesign, for_set: bool, confidence: float) -> Bounds:
    """Bounds where every row is right (or, of two classes, wrong), so that nothing was seen to vary."""
    unseen = float(design.unseen.max(initial=0.0)) if for_set else 1.0
    if unseen == 0:
        return table.value, table.value
    low, _ = wilson_bounds(1.0, design.effective_n / unseen, critical_value(confidence))
    inner = (table if table.value > 0 else _Table(table.cells[:, ::-1])).with_errors(1 - low).value
    return (inner, 1.0) if table.value > 0 else (-1.0, -inner)
