"""From what the loop found to upstream's result: metrics computed alike on every rank, and what is logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers.trainer_utils import EvalLoopOutput, EvalPrediction

from hf_trainplus.evaluation.loop import LoopOutput
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.training.logged import logged_metrics
from hf_trainplus.training.metric_objects import metric_objects, metrics_of_losses

if TYPE_CHECKING:
    from transformers import Trainer


def result_of(
    trainer: Trainer, output: LoopOutput, loader: Any, prefix: str, say_once: Callable[[str], None]
) -> EvalLoopOutput:
    """Compute the metrics of an evaluation and name what cannot be logged, once."""
    returned = agreed_metrics(trainer, output)
    dataset = getattr(loader, "dataset", None)
    total = len(dataset) if hasattr(dataset, "__len__") else len(output.results)
    confidence = getattr(trainer.args, "eval_confidence", 0.95)
    metrics, left_out = logged_metrics(output, returned, prefix, total=total, confidence=confidence)
    if left_out:
        say_once(f"kept out of the logs, since they are no single numbers: {', '.join(left_out)}")
    return EvalLoopOutput(
        predictions=output.predictions, label_ids=output.labels, metrics=metrics, num_samples=len(output.results)
    )


def agreed_metrics(trainer: Trainer, output: LoopOutput) -> dict[str, Any]:
    """Compute metrics on every rank from the same rows; an error on one rank is an error on all.

    Raises:
        RuntimeError: the metric function failed on another rank.
        Exception: what the metric function raised on this one.
    """
    ranks, returned, error = Ranks.current(), {}, None
    try:
        returned = _metrics(trainer, output)
    except Exception as caught:
        error = caught
    reasons = [reason for reason in ranks.gather(None if error is None else repr(error)) if reason is not None]
    if error is not None:
        raise error
    if reasons:
        raise RuntimeError(f"the metric function failed on another rank: {reasons[0]}")
    return returned


def _metrics(trainer: Trainer, output: LoopOutput) -> dict[str, Any]:
    function = trainer.compute_metrics
    objects = metric_objects(function)
    if objects:
        return {**output.metrics, **metrics_of_losses(objects, output.results)}
    if function is None or output.predictions is None or output.labels is None:
        return {}
    extras: dict[str, Any] = {}
    if "inputs" in trainer.args.include_for_metrics:
        extras["inputs"] = output.inputs
    if "loss" in trainer.args.include_for_metrics:
        extras["losses"] = output.results.loss_sum / np.maximum(output.results.target_count, 1)
    return dict(function(EvalPrediction(predictions=output.predictions, label_ids=output.labels, **extras)))
