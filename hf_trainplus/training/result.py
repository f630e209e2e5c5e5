"""From what the loop found to upstream's result: metrics computed alike on every rank, and what is logged."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from transformers.trainer_utils import EvalLoopOutput

from hf_trainplus.evaluation.batch_list import transposed
from hf_trainplus.evaluation.loop import LoopOutput
from hf_trainplus.evaluation.metrics.base import AdditiveMetric
from hf_trainplus.evaluation.rank_errors import agreed
from hf_trainplus.evaluation.spooled_array import little_resident
from hf_trainplus.training.leaving import interruptible
from hf_trainplus.training.logged import logged_metrics
from hf_trainplus.training.row_groups import with_groups
from hf_trainplus.training.stream_limits import is_beginning, stream_limit

if TYPE_CHECKING:
    from hf_trainplus.training.request import Request
    from hf_trainplus.training.runner import EvaluationRunner

NOT_CALLED = (
    "compute_metrics is not called: what the model returns does not have one row an example, and does not say where "
    "examples begin"
)


def result_of(runner: EvaluationRunner, output: LoopOutput, request: Request, prefix: str) -> EvalLoopOutput:
    """Compute the metrics of an evaluation and name what cannot be logged, once."""
    returned = agreed_metrics(runner, output, request)
    runner.cached.keep(request, output, returned)
    return EvalLoopOutput(
        predictions=output.predictions if request.predicting else cast("Any", None),
        label_ids=output.labels if request.predicting else None,
        metrics=logged_values(runner, output, returned, request, prefix),
        num_samples=len(output.results),
    )


def logged_values(
    runner: EvaluationRunner, output: LoopOutput, returned: dict[str, Any], request: Request, prefix: str
) -> dict[str, float | int]:
    """Return what is logged of a table and of what metrics returned, under the trainer's arguments.

    Args:
        runner: its trainer's arguments and metrics count.
        output: the table.
        returned: what the metrics returned.
        request: its dataset counts, and the subset that the rows of the table are.
        prefix: put before every key.
    """
    args, dataset = runner.trainer.args, getattr(request.loader, "dataset", None)
    total = len(cast("Sized", dataset)) if hasattr(dataset, "__len__") else len(output.results)
    slices, cluster = getattr(args, "eval_group_columns", None) or [], getattr(args, "eval_cluster_column", None)
    columns = list(dict.fromkeys([*slices, *([cluster] if cluster else [])]))
    output = replace(output, results=with_groups(output.results, dataset, columns))
    metrics, left_out = logged_metrics(
        output,
        returned,
        prefix,
        total=None if is_beginning(request, output.results, stream_limit(runner.trainer, request)) else total,
        confidence=getattr(args, "eval_confidence", 0.95),
        smooth={
            metric.primary: metric.primary_from_totals
            for metric in runner.own_metrics()
            if isinstance(metric, AdditiveMetric)
        },
        subset=request.subset,
        cluster=cluster,
        slices=slices,
    )
    if left_out:
        runner.say_once(f"kept out of the logs, since they are no single numbers: {', '.join(left_out)}")
    return metrics


def agreed_metrics(runner: EvaluationRunner, output: LoopOutput, request: Request) -> dict[str, Any]:
    """Compute the metrics of an evaluation, see ``agreed``; a stop signal in training leaves them."""
    with interruptible(runner.trainer):
        return agreed(lambda: _metrics(runner, output, request))


def _is_empty(predictions: Any) -> bool:
    """Say whether nothing was kept of the predictions, also where there is one entry a metric."""
    return predictions is None or (isinstance(predictions, tuple) and all(map(_is_empty, predictions)))


def _metrics(runner: EvaluationRunner, output: LoopOutput, request: Request) -> dict[str, Any]:
    metrics = runner.metrics_of(runner.trainer.model)
    results = output.results
    found = {**output.metrics, **metrics.from_losses(results.loss_sum, results.target_count)}
    if not metrics.collected or output.labels is None or _is_empty(output.predictions):
        if metrics.collected and not request.loss_only and bool(results.target_count.any()):
            runner.say_once(NOT_CALLED)
        return found
    losses = None
    if "loss" in runner.trainer.args.include_for_metrics:
        losses = results.loss_sum / np.maximum(results.target_count, 1)
    predictions, labels = output.predictions, output.labels
    if not runner.trainer.args.eval_do_concat_batches:
        if request.predicting:
            predictions = [metrics.reduce(*batch) for batch in zip(predictions, labels, strict=True)]
        return found | metrics.of_batches(transposed(predictions), labels, output.inputs, losses)
    if request.predicting:
        predictions = metrics.reduce(predictions, labels)
    with little_resident((predictions, output.inputs)):
        return found | metrics.of_rows(predictions, labels, output.inputs, losses)
