"""The metrics of a trainer: functions and objects of any origin that stand where upstream takes ``compute_metrics``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hf_trainplus.evaluation.batch_list import join_batches, rows_in
from hf_trainplus.evaluation.metrics.adapters import CollectedMetric, StreamingMetric, as_metric
from hf_trainplus.evaluation.metrics.base import Metric

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments

OF_LOSSES = "losses"


class TrainerMetrics:
    """What a trainer was given as ``compute_metrics``: nothing, one metric, or a list of them.

    Args:
        trainer: its ``compute_metrics``, tokenizer and arguments count.
        model: the model itself, whose configuration names the labels.

    Raises:
        TypeError: something that is no metric.
        ValueError: an object that lacks something that it needs.
    """

    def __init__(self, trainer: Trainer, model: Any) -> None:
        given: Any = trainer.compute_metrics
        self.given = given
        items = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
        config = getattr(model, "config", None)
        names = getattr(config, "id2label", None)
        processing = trainer.processing_class
        metrics = [
            as_metric(
                item,
                eval_predictions=getattr(trainer.args, "eval_predictions", None) or _of_batches(trainer.args),
                batch_eval_metrics=trainer.args.batch_eval_metrics,
                num_labels=getattr(config, "num_labels", None),
                label_names=[names[k] for k in sorted(names)] if isinstance(names, dict) else None,
                tokenizer=processing if hasattr(processing, "batch_decode") else None,
            )
            for item in items
        ]
        self.own: list[Metric] = [item for item in items if isinstance(item, Metric)]
        self.collected = [metric for metric in metrics if isinstance(metric, CollectedMetric)]
        streaming = [metric for metric in metrics if isinstance(metric, StreamingMetric)]
        self.streaming = [metric for metric in streaming if metric.form != OF_LOSSES]
        self.of_losses = [metric for metric in streaming if metric.form == OF_LOSSES]

    def reduce(self, predictions: Any, labels: Any) -> Any:
        """Reduce the predictions of a batch to what the collected metrics need, one item a metric."""
        return tuple(metric.reduce(predictions, labels) for metric in self.collected)

    def of_rows(self, predictions: Sequence[Any], labels: Any, inputs: Any, losses: Any) -> dict[str, Any]:
        """Compute the collected metrics from reduced predictions, one item a metric."""
        found: dict[str, Any] = {}
        for metric, reduced in zip(self.collected, predictions, strict=True):
            found |= metric.compute_rows(reduced, labels, inputs, losses)
        return found

    def of_batches(self, predictions: Sequence[Any], labels: Any, inputs: Any, losses: Any) -> dict[str, Any]:
        """Compute the collected metrics from lists of batches, one list a metric; functions are given the lists."""
        sizes = np.cumsum([rows_in(batch) for batch in labels])[:-1]
        apart = None if losses is None else np.split(losses, sizes)
        found: dict[str, Any] = {}
        for metric, reduced in zip(self.collected, predictions, strict=True):
            if metric.takes_batches:
                found |= metric.compute_rows(reduced, labels, inputs, apart)
                continue
            kept = None if inputs is None else join_batches(inputs)
            found |= metric.compute_rows(join_batches(reduced), join_batches(labels), kept, losses)
        return found

    def from_losses(self, loss_sum: Any, target_count: Any) -> dict[str, Any]:
        """Compute the metrics that are functions of the losses alone, such as perplexity."""
        found: dict[str, Any] = {}
        for metric in self.of_losses:
            metric.reset()
            metric.update(loss_sum, target_count)
            found |= metric.compute()
        return found


def _of_batches(args: TrainingArguments) -> Literal["logits"] | None:
    """Batches that stay apart are handed over as they are: what a function does with a list is not inferred."""
    return None if args.eval_do_concat_batches else "logits"
