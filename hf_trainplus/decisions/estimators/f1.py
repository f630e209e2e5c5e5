"""F1 with its interval, by linearization on weighted totals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.estimators.assembly import (
    Bounds,
    linearized_estimate,
    resolve_design,
    without_interval,
)
from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.label_counts import FlagLabels, PlainLabels, label_counts
from hf_trainplus.decisions.estimators.proportions import wilson_bounds
from hf_trainplus.decisions.estimators.quantiles import critical_value
from hf_trainplus.decisions.estimators.sampling_error import SamplingError
from hf_trainplus.decisions.estimators.transforms import SCALES
from hf_trainplus.decisions.estimators.uncertainty import Estimate
from hf_trainplus.decisions.estimators.variance import linearized_variance

_AVERAGES = ("binary", "micro", "macro")


def f1_interval(
    predictions: npt.ArrayLike,
    references: npt.ArrayLike,
    *,
    average: str = "binary",
    positive: Any = 1,
    labels: Sequence[Any] | None = None,
    n_total: int | None = None,
    design: SampleDesign | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """F1 with its interval.

    It does not weigh classes by size ("weighted" F1), and it takes a class without any label as F1 0, as scikit-learn
    does. Macro F1 of a sample that lacks a rare class is not the full set's: give ``labels``.

    Args:
        predictions: (n,) classes, or (n, K) zeros and ones for several labels a row.
        references: the same for the truth.
        average: ``"binary"`` for one class, ``"micro"`` for the totals of all, ``"macro"`` for the mean of the classes.
        positive: the class of ``"binary"``.
        labels: classes of ``"micro"`` and ``"macro"``; None takes all that occur (all K columns).
        n_total: rows in the full set when the n rows were drawn at random from it; None when they are the set.
        design: weights, strata and clusters of the rows, in place of n_total.
        confidence: level in (0, 1).

    Returns:
        The estimate; None where no label was given or predicted.

    Raises:
        ValueError: an unknown average or label, or shapes that differ.

    Source:
        F1 = 2 A / D with A right and D predicted plus true labels, influence (2 a_i - F1 d_i) N / D. Bounds of one F1
        are Wilson's for A / (D - A), of which F1 is a monotone function; those of macro F1 are symmetric on the logit
        scale.

    Example:
        >>> f1_interval([1, 1, 0, 0], [1, 0, 1, 0]).value
        0.5
    """
    counts = label_counts(predictions, references)
    used = resolve_design(len(np.asarray(references)), n_total, design)
    chosen = _classes(counts, average, positive, labels)
    if average == "macro":
        return _macro(counts, chosen, used, confidence)
    return _single(counts, chosen, used, confidence, average)


def _classes(
    counts: PlainLabels | FlagLabels, average: str, positive: Any, labels: Sequence[Any] | None
) -> npt.NDArray[np.float64]:
    """Return (K,) 1.0 for each class that counts; a class that does not occur adds a column of its own."""
    if average not in _AVERAGES:
        raise ValueError(f"average is {average!r}; allowed are {', '.join(map(repr, _AVERAGES))}.")
    wanted = [positive] if average == "binary" else (counts.names if labels is None else list(labels))
    if isinstance(counts, FlagLabels):
        unknown = [name for name in wanted if name not in counts.names]
        if unknown:
            raise ValueError(f"labels {unknown} are not columns; allowed are 0 to {len(counts.names) - 1}.")
    counts.names.extend(name for name in wanted if name not in counts.names)
    return np.array([float(name in wanted) for name in counts.names])


def _single(
    counts: PlainLabels | FlagLabels,
    chosen: npt.NDArray[np.float64],
    design: SampleDesign,
    confidence: float,
    average: str,
) -> Estimate:
    right, every = (float(total @ chosen) for total in counts.totals(design))
    if every == 0:
        return without_interval(None, design, confidence, "empty")
    value = 2 * right / every
    influence = counts.rows(2 * chosen, -value * chosen) * (design.weights.sum() / every)
    variance = linearized_variance(influence, design)
    union = (every - right) / float(design.weights.sum()) * design.effective_n

    def bounds(error: SamplingError, for_set: bool) -> Bounds:
        return _jaccard_bounds(value, union, error, design, for_set, confidence)

    return linearized_estimate(value, variance, design, confidence, method=f"{average} F1, Wilson", bounds=bounds)


def _jaccard_bounds(
    value: float, union: float, error: SamplingError, design: SampleDesign, for_set: bool, confidence: float
) -> Bounds:
    """Wilson's bounds for A / (D - A) = F1 / (2 - F1), mapped back."""
    if not error.known:
        return None
    share, slope = value / (2 - value), 2 / (2 - value) ** 2
    unseen = float(design.unseen.max(initial=0.0)) if for_set else 1.0
    own = error.variance * slope**2
    rows = share * (1 - share) / own if own > 0 and 0 < share < 1 else union / unseen if unseen else math.inf
    if math.isinf(rows):
        return value, value
    degrees = math.inf if design.clusters is None else error.degrees
    low, high = wilson_bounds(share, rows, critical_value(confidence, degrees))
    return 2 * low / (1 + low), 2 * high / (1 + high)


def _macro(
    counts: PlainLabels | FlagLabels, chosen: npt.NDArray[np.float64], design: SampleDesign, confidence: float
) -> Estimate:
    right, every = counts.totals(design)
    safe = np.where(every > 0, every, 1.0)
    each = np.where(every > 0, 2 * right / safe, 0.0)
    value = float(each @ chosen / chosen.sum())
    scaled = chosen / chosen.sum() * float(design.weights.sum()) / safe
    variance = linearized_variance(counts.rows(2 * scaled, -each * scaled), design)
    pooled = _single(counts, chosen, design, confidence, "micro")

    def bounds(error: SamplingError, for_set: bool) -> Bounds:
        found = SCALES["logit"].bounds(value, error, confidence)
        if found is not None or not error.known:
            return found
        # all right or all wrong: no class varies, and what is left open is what is left open of all rows
        ends = (pooled.ci_low, pooled.ci_high) if for_set else (pooled.population_ci_low, pooled.population_ci_high)
        return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])

    return linearized_estimate(value, variance, design, confidence, method="macro F1, logit", bounds=bounds)
