"""What the evaluation loop asks of a metric, whoever wrote it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from hf_trainplus.evaluation.metrics.base import Float64Array
from hf_trainplus.evaluation.metrics.forms import PredictionForm

T = TypeVar("T")

Sharing = Literal["states", "rows", "itself"]
"""How ranks come together. ``states``: each rank updates with its own rows, states are gathered and merged; ``rows``:
every rank is given the rows of all, batch by batch; ``itself``: the metric gathers in ``compute``, which every rank
must call."""


@dataclass(frozen=True)
class RowColumns:
    """What the rows of a batch add to a metric.

    Args:
        statistics: (n, k) additive statistics, or the scores and targets of a metric of ranks; None where the metric
            has none, or too many to keep.
        scores: (n,) scores where the metric is their mean, else None.
    """

    statistics: Float64Array | None = None
    scores: Float64Array | None = None


class EvaluationMetric(ABC):
    """What both kinds of metric have.

    Attributes:
        form: reduced form that ``reduce`` gives; ``losses`` means that no predictions are wanted.
        primary: key of the result that stands for the metric, None when it is not known.
        greater_is_better: direction of the primary value, None when it is not known.
    """

    form: PredictionForm = "logits"
    primary: str | None = None
    greater_is_better: bool | None = None

    @abstractmethod
    def reduce(self, predictions: Any, labels: Any) -> Any:
        """Reduce the predictions of one batch, on their device, before anything is kept or moved."""


class StreamingMetric(EvaluationMetric):
    """A metric that takes in reduced predictions a batch at a time; nothing is kept of the batch."""

    sharing: ClassVar[Sharing]

    @abstractmethod
    def reset(self) -> None:
        """Forget all rows; called before each evaluation."""

    @abstractmethod
    def update(self, predictions: Any, labels: Any) -> None:
        """Take in the rows of a batch that count: (n, ...) reduced predictions and (n, ...) labels."""

    @abstractmethod
    def compute(self) -> dict[str, Any]:
        """Return name -> value over all rows since ``reset``."""

    def bring_together(self, gather: Callable[[T], list[T]]) -> None:
        """Take in the rows of the other ranks before ``compute``; nothing to do where ``sharing`` has seen to it.

        Args:
            gather: returns every rank's value, in rank order, on every rank. It is a collective.
        """

    def update_rows(self, predictions: Any, labels: Any) -> RowColumns:
        """Take in a batch as ``update`` does, and return what its rows add where that is known."""
        self.update(predictions, labels)
        return RowColumns()


class CollectedMetric(EvaluationMetric):
    """A metric that needs the rows of the whole evaluation at once, reduced and in dataset order.

    Attributes:
        takes_batches: it may be given lists of batches where ``eval_do_concat_batches=False`` keeps them apart.
    """

    takes_batches: ClassVar[bool] = False

    @abstractmethod
    def compute_rows(self, predictions: Any, labels: Any, inputs: Any = None, losses: Any = None) -> dict[str, Any]:
        """Return name -> value.

        Args:
            predictions: (n, ...) reduced predictions of all ranks, shorter rows filled with -100 (ids) or NaN.
            labels: (n, ...) labels of the same rows.
            inputs: (n, ...) main inputs, or None.
            losses: (n,) losses, or None.
        """
