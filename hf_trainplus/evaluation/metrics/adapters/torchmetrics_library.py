"""Objects of torchmetrics for the evaluation loop."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

from hf_trainplus.evaluation.metrics.adapters.contract import StreamingMetric
from hf_trainplus.evaluation.metrics.forms import IGNORE_INDEX, main_prediction
from hf_trainplus.evaluation.metrics.texts import Decoder, without_negative_ids


class TorchMetric(StreamingMetric):
    """A torchmetrics ``Metric`` or ``MetricCollection``, updated a batch at a time where the logits lie.

    A copy is used, so that the user's object stays as it is. It is given logits, never more than one batch of them:
    rows of tokens are flattened and targets of -100 dropped, a regression head's last axis of 1 is dropped, and a
    binary metric gets the probability of class 1 of two columns. Text metrics get decoded texts. Ranks come together
    by the object's own synchronisation in ``compute``.

    Args:
        metric: the user's object.
        tokenizer: decodes ids for metrics of ``torchmetrics.text``.

    Raises:
        ValueError: a text metric and no tokenizer.
    """

    sharing = "itself"

    def __init__(self, metric: Any, tokenizer: Decoder | None = None) -> None:
        self._metric = metric.clone()
        self._members = list(self._metric.values()) if hasattr(self._metric, "values") else [self._metric]
        self._tokenizer = tokenizer
        self._takes_texts = any(_is_text_metric(member) for member in self._members)
        self._binary = all(type(member).__name__.startswith("Binary") for member in self._members)
        self._updated = False
        if self._takes_texts and tokenizer is None:
            raise ValueError(
                f"{type(metric).__name__} takes texts and no tokenizer is known; use as_metric(metric, "
                "tokenizer=tokenizer)."
            )
        self.form = "argmax" if self._takes_texts else "logits"
        if len(self._members) == 1:
            self.greater_is_better = self._members[0].higher_is_better
            self.primary = None if hasattr(self._metric, "values") else _key(self._metric)

    def reduce(self, predictions: Any, labels: Any) -> Any:
        """Return the main logits, and take the metric to their device; ids for metrics of texts."""
        logits = main_prediction(predictions)
        self._metric.to(logits.device)
        return logits.argmax(-1) if self._takes_texts and logits.is_floating_point() else logits

    def reset(self) -> None:
        """Forget all rows."""
        self._metric.reset()
        self._updated = False

    def update(self, predictions: Any, labels: Any) -> None:
        """Take in a batch."""
        if self._takes_texts:
            pair = (self._texts(predictions), self._texts(labels))
        else:
            pair = self._aligned(predictions, labels)
        if len(pair[0]):
            self._metric.update(*pair)
            self._updated = True

    def _aligned(self, predictions: Any, labels: Any) -> tuple[Any, Any]:
        labels = labels.to(predictions.device)
        if predictions.ndim == labels.ndim + 1 and predictions.shape[-1] == 1:
            return predictions[..., 0], labels
        if predictions.ndim == labels.ndim:
            return predictions, labels if not labels.is_floating_point() or predictions.ndim == 1 else self._whole(
                labels
            )
        counted = labels != IGNORE_INDEX
        predictions, labels = predictions[counted], labels[counted]
        if self._binary and predictions.ndim == 2 and predictions.shape[-1] == 2:
            predictions = predictions.softmax(-1)[:, 1]
        return predictions, labels

    def _whole(self, labels: Any) -> Any:
        """Multi-label losses want real-valued 0/1 targets, the classification metrics whole ones."""
        classifies = all("classification" in type(member).__module__ for member in self._members)
        return labels.long() if classifies else labels

    def _texts(self, values: Any) -> list[str]:
        rows = [without_negative_ids(row) for row in values]
        return list(self._tokenizer.batch_decode(rows, skip_special_tokens=True)) if self._tokenizer else []

    def compute(self) -> dict[str, Any]:
        """Return the values over the rows of all ranks; a collective where there are several."""
        with warnings.catch_warnings():
            if not self._updated:  # this rank may have had no row while others had
                warnings.filterwarnings("ignore", message="The ``compute`` method of metric", category=UserWarning)
            result = self._metric.compute()
        return dict(result) if isinstance(result, Mapping) else {_key(self._metric): result}


def _is_text_metric(metric: Any) -> bool:
    return type(metric).__module__.startswith("torchmetrics.text") and type(metric).__name__ != "Perplexity"


def _key(metric: Any) -> str:
    """Return the class's name as a key: ``MulticlassF1Score`` becomes ``f1_score``."""
    name = re.sub(r"^(Binary|Multiclass|Multilabel)(?=[A-Z])", "", type(metric).__name__)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
