"""Metrics of the order of scores: they keep one score a row, since no sum of rows determines them."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from hf_trainplus.evaluation.metrics.base import Float64Array, Metric, StateArrays, require
from hf_trainplus.evaluation.metrics.forms import main_prediction, ranking_scores
from hf_trainplus.evaluation.metrics.score_arrays import as_scores

if TYPE_CHECKING:
    from typing_extensions import Self


class RankMetric(Metric):
    """A metric that keeps the score and the target of every row until it is computed.

    Its memory grows with the rows (about 8 bytes each and class), and it has no additive statistics: an interval comes
    from ``from_rows`` on samples of the rows.
    """

    form = "scores"

    def __init__(self) -> None:
        self.primary = self.name
        self.reset()

    def reset(self) -> None:
        """Forget all rows."""
        self._scores: list[npt.NDArray[Any]] = []
        self._targets: list[npt.NDArray[Any]] = []

    def update(self, predictions: Any, references: Any) -> None:
        """Keep the scores and targets of a batch of n rows.

        Raises:
            ValueError: the numbers of rows differ.
        """
        scores, targets = self._checked(predictions, references)
        self._scores.append(scores)
        self._targets.append(targets)

    def row_payload(self, predictions: Any, references: Any) -> Float64Array:
        """Return (n, k) what a batch of n rows holds: their scores, then their targets; see ``from_payload``."""
        parts = self._checked(predictions, references)
        return np.column_stack([np.asarray(part, dtype=np.float64).reshape(len(part), -1) for part in parts])

    def from_payload(self, payload: Float64Array) -> float:
        """Return the value over n rows of ``row_payload``; NaN where it is not defined."""
        first = payload.shape[1] - self._target_columns(payload.shape[1])
        scores, targets = payload[:, :first], payload[:, first:]
        return self.from_rows(*(part[:, 0] if part.shape[1] == 1 else part for part in (scores, targets)))

    def _target_columns(self, width: int) -> int:
        """Columns of a row's payload that are targets."""
        return 1

    def _checked(self, predictions: Any, references: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        scores = as_scores(predictions, self.name, "predictions")
        targets = as_scores(references, self.name, "references")
        scores = scores[:, 0] if scores.ndim == 2 and scores.shape[1] == 1 else scores
        targets = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
        if scores.shape[:1] != targets.shape[:1] or not scores.ndim:
            raise ValueError(
                f"{self.name} was given predictions of shape {scores.shape} and references of shape {targets.shape}; "
                "give one score for each target."
            )
        return scores, targets

    @abstractmethod
    def from_rows(self, scores: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
        """Return the value over n rows; NaN where it is not defined."""

    def compute(self) -> dict[str, float]:
        """Return the value over all rows so far."""
        arrays = self.state_arrays()
        return {self.primary: self.from_rows(arrays["scores"], arrays["targets"])}

    def state_arrays(self) -> StateArrays:
        """Return the scores and targets of all rows so far."""
        return {
            "scores": np.concatenate(self._scores) if self._scores else np.empty(0),
            "targets": np.concatenate(self._targets) if self._targets else np.empty(0),
        }

    def load_state_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Put back what ``state_arrays`` returned."""
        filled = len(arrays["scores"]) > 0
        self._scores, self._targets = ([arrays["scores"]], [arrays["targets"]]) if filled else ([], [])

    def _merge(self, other: Self) -> None:
        self._scores = self._scores + other._scores
        self._targets = self._targets + other._targets


class RocAuc(RankMetric):
    """Area under the ROC curve (scikit-learn's ``roc_auc_score``).

    NaN where fewer than two classes occur or a score is not finite. It takes no sample weights. Given model output of
    two columns it ranks by the logit of class 1 over class 0, which orders rows as the probability of class 1 does;
    given more columns ``reduce`` makes softmax probabilities.

    Args:
        average: ``macro``, ``micro`` or ``weighted`` over classes or labels.
        multi_class: ``ovr`` or ``ovo`` for more than two classes (scores are then probabilities that sum to 1).
        labels: class ids of the columns, where not all occur.
        max_fpr: area up to this false positive rate, in (0, 1]; binary only.
        multilabel: targets are 0/1 vectors (n, C).

    Raises:
        ValueError: ``update`` is given 0/1 vectors without ``multilabel``.

    Logged keys: ``roc_auc`` (0 to 1).

    Example:
        >>> metric = RocAuc()
        >>> metric.update([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
        >>> metric.compute()
        {'roc_auc': 0.75}
    """

    name = "roc_auc"

    def __init__(
        self,
        average: Literal["macro", "micro", "weighted"] = "macro",
        multi_class: Literal["raise", "ovr", "ovo"] = "raise",
        labels: Sequence[int] | None = None,
        max_fpr: float | None = None,
        multilabel: bool = False,
    ) -> None:
        super().__init__()
        require("sklearn.metrics", self.name)
        self.average = average
        self.multi_class = multi_class
        self.labels = labels
        self.max_fpr = max_fpr
        self.multilabel = multilabel

    def reduce(self, output: Any) -> Any:
        """Reduce logits (n, C) to scores: (n,) for one or two columns, else softmax probabilities (n, C)."""
        return main_prediction(output) if self.multilabel else ranking_scores(output)

    def _checked(self, predictions: Any, references: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        scores, targets = super()._checked(predictions, references)
        if targets.ndim == 2 and not self.multilabel:
            raise ValueError(
                f"{self.name} was given references of shape {targets.shape}: rows of 0/1 labels; use "
                f'load_metric("{self.name}", multilabel=True), which ranks each label by its own logit.'
            )
        return scores, targets

    def _target_columns(self, width: int) -> int:
        return width // 2 if self.multilabel else 1

    def from_rows(self, scores: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
        """Return the area over n rows; NaN where it is not defined."""
        if len(targets) == 0 or not np.isfinite(scores).all():
            return float("nan")
        by_class = scores.ndim == 2 and not self.multilabel
        labels = np.arange(scores.shape[1]) if by_class and self.labels is None else self.labels
        metrics = require("sklearn.metrics", self.name)
        undefined = require("sklearn.exceptions", self.name).UndefinedMetricWarning
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", undefined)
            area = metrics.roc_auc_score(
                targets,
                scores,
                average=self.average,
                multi_class=self.multi_class,
                labels=labels,
                max_fpr=self.max_fpr,
            )
        return float(area)


class Spearman(RankMetric):
    """Rank correlation of predictions and targets (scipy's ``spearmanr``), without its p-value.

    NaN where one side is constant or a value is not finite.

    Logged keys: ``spearmanr`` (-1 to 1).

    Example:
        >>> metric = Spearman()
        >>> metric.update([1.0, 2.0, 30.0], [2.0, 4.0, 7.0])
        >>> round(metric.compute()["spearmanr"], 6)
        1.0
    """

    name = "spearmanr"

    def __init__(self) -> None:
        super().__init__()
        require("scipy.stats", self.name)

    def from_rows(self, scores: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
        """Return the rank correlation of n rows; NaN where it is not defined."""
        if len(targets) < 2 or not (np.isfinite(scores).all() and np.isfinite(targets).all()):
            return float("nan")
        if scores.ndim > 1 or targets.ndim > 1:
            raise ValueError(f"{self.name} was given rows of shape {scores.shape[1:]}; give one number a row.")
        if (scores == scores[0]).all() or (targets == targets[0]).all():
            return float("nan")
        return float(require("scipy.stats", self.name).spearmanr(targets, scores)[0])
