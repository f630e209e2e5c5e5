"""From what a user passes as ``compute_metrics`` to what the evaluation loop asks for."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Literal

from hf_trainplus.evaluation.metrics.adapters.contract import CollectedMetric, StreamingMetric
from hf_trainplus.evaluation.metrics.adapters.evaluate_library import EvaluateMetric
from hf_trainplus.evaluation.metrics.adapters.functions import BatchFunctionMetric, FunctionMetric
from hf_trainplus.evaluation.metrics.adapters.own import OwnMetric
from hf_trainplus.evaluation.metrics.adapters.torchmetrics_library import TorchMetric
from hf_trainplus.evaluation.metrics.base import Metric
from hf_trainplus.evaluation.metrics.texts import Decoder


def as_metric(
    given: Any,
    *,
    eval_predictions: Literal["argmax", "logits"] | None = None,
    batch_eval_metrics: bool = False,
    num_labels: int | None = None,
    label_names: Sequence[str] | None = None,
    tokenizer: Decoder | None = None,
) -> StreamingMetric | CollectedMetric:
    """Bring a metric of any origin to what the evaluation loop asks for.

    It calls nothing of what is given, imports none of the libraries, and changes no object of the user's but a
    ``Metric``, whose open options it fills in (``bind``).

    Args:
        given: a ``load_metric`` object, an object of the evaluate library or of torchmetrics, a function of an
            ``EvalPrediction``, or one in upstream's ``batch_eval_metrics`` style.
        eval_predictions: what an ordinary function is given; None to infer it.
        batch_eval_metrics: functions are called with every batch and ``compute_result``; a function whose
            ``compute_result`` has no default is so without being told.
        num_labels: number of classes of the model.
        label_names: tag of each class id.
        tokenizer: decodes ids for metrics of texts.

    Returns:
        A ``StreamingMetric`` (updated a batch at a time) or a ``CollectedMetric`` (called once on all rows).

    Raises:
        ValueError: ``eval_predictions`` is unknown, or the object lacks something that it needs.
        TypeError: the object is of none of these kinds.

    Example:
        >>> from hf_trainplus.evaluation.metrics import load_metric
        >>> as_metric(load_metric("accuracy")).form
        'argmax'
    """
    if eval_predictions not in (None, "argmax", "logits"):
        raise ValueError(f"eval_predictions was given {eval_predictions!r}; allowed are None, 'argmax' and 'logits'.")
    if isinstance(given, Metric):
        given.bind(num_labels=num_labels, label_names=label_names, tokenizer=tokenizer)
        return OwnMetric(given)
    if _is_evaluate_object(given):
        return EvaluateMetric(given, tokenizer, label_names)
    if _is_torchmetrics_object(given):
        return TorchMetric(given, tokenizer)
    if not callable(given) or isinstance(given, type):
        raise TypeError(
            f"compute_metrics was given {given!r}; allowed are load_metric(...), an object of the evaluate library or "
            "of torchmetrics, and a function of an EvalPrediction that returns a dictionary."
        )
    if batch_eval_metrics or _wants_compute_result(given):
        return BatchFunctionMetric(given)
    return FunctionMetric(given, eval_predictions)


def _is_evaluate_object(given: Any) -> bool:
    declares = hasattr(given, "features") or hasattr(given, "evaluation_modules")
    return declares and hasattr(given, "add_batch") and hasattr(given, "compute") and not isinstance(given, type)


def _is_torchmetrics_object(given: Any) -> bool:
    of_library = any(base.__module__.partition(".")[0] == "torchmetrics" for base in type(given).__mro__)
    return of_library and hasattr(given, "update") and hasattr(given, "compute")


def _wants_compute_result(function: Any) -> bool:
    try:
        parameter = inspect.signature(function).parameters.get("compute_result")
    except (TypeError, ValueError):  # a builtin may have no signature
        return False
    return parameter is not None and parameter.default is inspect.Parameter.empty
