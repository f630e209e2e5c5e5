"""Metric objects that stand where upstream takes a metric function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hf_trainplus.evaluation.metrics.base import Metric
from hf_trainplus.results import ExampleResults

OF_LOSSES = "losses"


def metric_objects(compute_metrics: Any) -> list[Metric]:
    """Return the metric objects that were passed as ``compute_metrics``: one, or a list of them; none for a function.

    Raises:
        TypeError: a list that holds something else.

    Example:
        >>> metric_objects(len)
        []
    """
    if isinstance(compute_metrics, Metric):
        return [compute_metrics]
    if not isinstance(compute_metrics, (list, tuple)):
        return []
    for metric in compute_metrics:
        if not isinstance(metric, Metric):
            raise TypeError(
                f"compute_metrics was given a list that holds {type(metric).__name__}; allowed are metric objects, "
                'e.g. compute_metrics=[load_metric("accuracy"), load_metric("f1", average="macro")], or one function.'
            )
    return list(compute_metrics)


def bind_metrics(metrics: Sequence[Metric], model: Any, processing_class: Any) -> None:
    """Tell metrics what the model's configuration knows: its labels, and how to decode ids."""
    config = getattr(model, "config", None)
    names = getattr(config, "id2label", None)
    labels = [names[k] for k in sorted(names)] if isinstance(names, dict) else None
    tokenizer = processing_class if hasattr(processing_class, "batch_decode") else None
    for metric in metrics:
        metric.bind(num_labels=getattr(config, "num_labels", None), label_names=labels, tokenizer=tokenizer)


def by_prediction(metrics: Sequence[Metric]) -> list[Metric]:
    """Keep the metrics that need predictions."""
    return [metric for metric in metrics if metric.form != OF_LOSSES]


def metrics_of_losses(metrics: Sequence[Metric], results: ExampleResults) -> dict[str, float]:
    """Compute the metrics that are functions of the losses alone, such as perplexity."""
    found: dict[str, float] = {}
    for metric in metrics:
        if metric.form == OF_LOSSES:
            metric.reset()
            metric.update(results.loss_sum, results.target_count)
            found |= metric.compute()
    return found
