"""What a race compares: additive columns a row and the smooth function of their means that is the metric.

Every metric here is a function of totals over the rows, so that a paired difference of two checkpoints has a
delta-method standard error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hf_trainplus.decisions.racing.sums import combine
from hf_trainplus.results import ExampleResults, Float64Array

_STEP = 1e-6


class AdditiveMetric(Protocol):
    """A metric ``value(mean of the rows' columns)``; ``lower``/``upper`` bound one row's column where it is alone.

    ``columns`` gives the (n, k) additive columns of the rows it was handed; ``value`` maps (k,) means to the metric;
    ``gradient`` is its derivative there, shape (k,). ``lower`` and ``upper`` speak of the first column.
    """

    @property
    def name(self) -> str:
        """Name in logs and audit records."""

    @property
    def greater_is_better(self) -> bool:
        """True when the larger value wins."""

    @property
    def lower(self) -> float:
        """Least possible entry of the first column, ``-inf`` when unknown."""

    @property
    def upper(self) -> float:
        """Largest possible entry of the first column, ``inf`` when unknown."""

    def columns(self, results: ExampleResults) -> Float64Array:
        """Return the rows' additive columns, shape (n, k)."""

    def value(self, means: Float64Array) -> float:
        """Return the metric of the columns' means, shape (k,) to a number."""

    def gradient(self, means: Float64Array) -> Float64Array:
        """Return the derivative of ``value`` at the means, shape (k,)."""

    def rows(self, values: Float64Array, means: Float64Array) -> Float64Array:
        """Return (n,) what each row adds to the metric, up to a constant that all checkpoints share."""


@dataclass(frozen=True)
class LossMetric:
    """Token-exact loss: summed losses over summed targets.

    It is not the mean of batch means that stock evaluation reports for unequal batches. Rows without targets weigh
    nothing, whatever their loss.

    Args:
        name: name in logs.
        lower: least loss that one row can have; 0 for a cross entropy, ``-inf`` for a loss that can be negative.

    Example:
        >>> table = ExampleResults([0, 1], [3.0, 1.0], [3, 1])
        >>> LossMetric().value(LossMetric().columns(table).mean(axis=0))
        1.0
    """

    name: str = "loss"
    lower: float = 0.0

    @property
    def greater_is_better(self) -> bool:
        """Losses are minimised."""
        return False

    @property
    def upper(self) -> float:
        """A loss has no upper bound."""
        return np.inf

    def columns(self, results: ExampleResults) -> Float64Array:
        """Return (n, 2): loss sum, 0 where no target counts, and target count."""
        return np.column_stack([np.where(results.counted, results.loss_sum, 0.0), results.target_count])

    def value(self, means: Float64Array) -> float:
        """Return the loss per target; NaN without targets."""
        return float(means[0] / means[1]) if means[1] > 0 else float("nan")

    def gradient(self, means: Float64Array) -> Float64Array:
        """Return the derivative of the ratio."""
        return np.array([1.0 / means[1], -means[0] / means[1] ** 2])

    def rows(self, values: Float64Array, means: Float64Array) -> Float64Array:
        """Return the losses; target counts are the same for every checkpoint."""
        return np.asarray(values[:, 0] / means[1], dtype=np.float64)


@dataclass(frozen=True)
class ScoreMetric:
    """Mean of one per-example score of ``ExampleResults.scores``.

    Args:
        name: the score's name, also its name in logs.
        greater_is_better: True when the larger mean wins.
        lower: least score a row can have; with ``upper`` it lets the race settle 0/1 scores and ties with certainty.
        upper: largest score a row can have.

    Example:
        >>> table = ExampleResults([0, 1], [0.0, 0.0], [1, 1], scores={"accuracy": [1, 0]})
        >>> metric = ScoreMetric("accuracy", greater_is_better=True, lower=0.0, upper=1.0)
        >>> metric.value(metric.columns(table).mean(axis=0))
        0.5
    """

    name: str
    greater_is_better: bool
    lower: float = -np.inf
    upper: float = np.inf

    def columns(self, results: ExampleResults) -> Float64Array:
        """Return (n, 1).

        Raises:
            ValueError: the table has no score of this name.
        """
        if self.name not in results.scores:
            raise ValueError(
                f"score {self.name!r} is not among the rows' scores {sorted(results.scores)}; name one of them in "
                "metric_for_best_model, or let the metric object give per-example scores."
            )
        return results.scores[self.name][:, None]

    def value(self, means: Float64Array) -> float:
        """Return the mean itself."""
        return float(means[0])

    def gradient(self, means: Float64Array) -> Float64Array:
        """Return one."""
        return np.ones(1)

    def rows(self, values: Float64Array, means: Float64Array) -> Float64Array:
        """Return the scores."""
        return values[:, 0]


@dataclass(frozen=True)
class StatisticMetric:
    """A smooth function of the means of additive statistics: F1, MCC, corpus BLEU, chrF, word error rate.

    The function must be differentiable where it is used and must not depend on the number of rows other than through
    the means; a metric of ranks (AUC) is none of these.

    Args:
        name: name of the statistics in ``ExampleResults.statistics`` and in logs.
        function: maps (k,) means to the metric.
        greater_is_better: True when the larger value wins.

    Example:
        >>> wer = StatisticMetric("wer", lambda m: m[0] / m[1], greater_is_better=False)
        >>> wer.gradient(np.array([1.0, 4.0])).round(4).tolist()
        [0.25, -0.0625]
    """

    name: str
    function: Callable[[Float64Array], float]
    greater_is_better: bool

    @property
    def lower(self) -> float:
        """A statistic has no bound that a metric's sign could use."""
        return -np.inf

    @property
    def upper(self) -> float:
        """A statistic has no bound that a metric's sign could use."""
        return np.inf

    def columns(self, results: ExampleResults) -> Float64Array:
        """Return (n, k).

        Raises:
            ValueError: the table has no statistics of this name.
        """
        if self.name not in results.statistics:
            raise ValueError(
                f"statistics {self.name!r} are not among {sorted(results.statistics)}; let the metric object give "
                "them under that name."
            )
        return results.statistics[self.name]

    def value(self, means: Float64Array) -> float:
        """Return the metric of the means."""
        return float(self.function(means))

    def gradient(self, means: Float64Array) -> Float64Array:
        """Return the numeric derivative, 0 where the metric is not defined; no count goes below 0."""
        steps = _STEP * np.maximum(np.abs(means), 1e-3)
        below = np.where(means >= 0, np.minimum(steps, np.maximum(means, 0.0)), steps)
        rise = [
            self.function(means + up) - self.function(means - down)
            for up, down in zip(np.diag(steps), np.diag(below), strict=True)
        ]
        return np.nan_to_num(np.array(rise, dtype=np.float64) / (steps + below), nan=0.0, posinf=0.0, neginf=0.0)

    def rows(self, values: Float64Array, means: Float64Array) -> Float64Array:
        """Return the linearised contributions."""
        return combine(values, self.gradient(means))


def unit_of(metric: AdditiveMetric) -> float:
    """Most that one row can change a mean score bounded on both sides; 0 for every other metric.

    Example:
        >>> unit_of(ScoreMetric("accuracy", greater_is_better=True, lower=0.0, upper=1.0)), unit_of(LossMetric())
        (1.0, 0.0)
    """
    if isinstance(metric, ScoreMetric) and np.isfinite(metric.lower) and np.isfinite(metric.upper):
        return metric.upper - metric.lower
    return 0.0
