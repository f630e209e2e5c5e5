"""Interval of any smooth function of additive statistics: corpus BLEU, chrF, WER and their kind."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.estimators.assembly import (
    Bounds,
    linearized_estimate,
    resolve_design,
    without_interval,
)
from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.sampling_error import SamplingError
from hf_trainplus.decisions.estimators.transforms import scale_named
from hf_trainplus.decisions.estimators.uncertainty import Estimate
from hf_trainplus.decisions.estimators.variance import linearized_variance
from hf_trainplus.results import Float64Array

_STEP = 0.1  # of a total's standard error: wide enough for counts that a metric rounds, narrow enough to be a slope


def smooth_interval(
    statistics: npt.ArrayLike,
    value: Callable[[Float64Array], float],
    *,
    n_total: int | None = None,
    design: SampleDesign | None = None,
    confidence: float = 0.95,
    transform: str = "identity",
) -> Estimate:
    """Interval of a metric that is a smooth function of totals, by the delta method.

    It does not fit a metric with jumps (a median, an argmax over the corpus): see ``jackknife_interval``. The function
    is called with the totals of the full set as the sample estimates them, so it must not depend on whole counts.

    Args:
        statistics: (n, k) additive statistics of each row, e.g. n-gram matches and lengths.
        value: (k,) totals -> the metric.
        n_total: rows in the full set when the n rows were drawn at random from it; None when they are the set.
        design: weights, strata and clusters of the rows, in place of n_total.
        confidence: level in (0, 1).
        transform: scale on which the bounds are symmetric: ``"identity"``, ``"log"``, ``"logit"`` or ``"atanh"``.

    Returns:
        The estimate; no interval where the metric or its slope is not finite, or at an end of the scale.

    Raises:
        ValueError: statistics that are not (n, k), or an unknown transform.

    Source:
        Delta method on totals with slopes by central differences over a tenth of a standard error.

    Example:
        >>> errors_and_words = [[1, 4], [0, 5], [2, 3]]
        >>> smooth_interval(errors_and_words, lambda totals: totals[0] / totals[1]).value
        0.25
    """
    table = np.asarray(statistics, dtype=np.float64)
    if table.ndim != 2:
        raise ValueError(f"statistics have shape {table.shape}; allowed is (n, k), one row of statistics a row.")
    scale = scale_named(transform)
    used = resolve_design(len(table), n_total, design)
    if not used.n:
        return without_interval(None, used, confidence, "empty")
    totals = used.weights @ table
    found = float(value(totals))
    slopes = _slopes(value, totals, table, used) if math.isfinite(found) else np.full(len(totals), math.nan)
    if not bool(np.isfinite(slopes).all()):
        return without_interval(found, used, confidence, "non-finite")
    rows = float(used.weights.sum())
    influence = (table - totals / rows) @ slopes * rows

    def bounds(error: SamplingError, _: bool) -> Bounds:
        return scale.bounds(found, error, confidence)

    variance = linearized_variance(influence, used)
    return linearized_estimate(found, variance, used, confidence, method=f"delta, {transform}", bounds=bounds)


def _slopes(
    value: Callable[[Float64Array], float], totals: Float64Array, table: Float64Array, design: SampleDesign
) -> Float64Array:
    """Slope of the metric in each total; 0 where a statistic never varies, so that its slope does not matter."""
    rows = float(design.weights.sum())
    steps = _STEP * (table - totals / rows).std(axis=0) * rows / math.sqrt(design.n)
    slopes = np.zeros(len(totals))
    for place in np.flatnonzero(steps > 0):
        # a count cannot fall below zero, where many metrics end
        down = min(steps[place], totals[place]) if bool((table[:, place] >= 0).all()) else steps[place]
        above, below = totals.copy(), totals.copy()
        above[place] += steps[place]
        below[place] -= down
        slopes[place] = (float(value(above)) - float(value(below))) / (steps[place] + down)
    return slopes
