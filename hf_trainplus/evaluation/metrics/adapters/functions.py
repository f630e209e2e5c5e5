"""Ordinary ``compute_metrics`` functions for the evaluation loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hf_trainplus.evaluation.metrics.adapters.contract import CollectedMetric, StreamingMetric
from hf_trainplus.evaluation.metrics.forms import argmax_ids, is_floating
from hf_trainplus.evaluation.metrics.inference import infer_reduction

MetricFunction = Callable[..., Any]


class ArgmaxPredictions:
    """Predictions of which only the argmax over the last axis was kept.

    It answers ``argmax`` over that axis, as a method and to ``np.argmax``, and refuses to be read as an array.

    Args:
        ids: (n, ...) the argmax; negative ids, which fill shorter rows, become 0 as the argmax of filled logits is.

    Example:
        >>> import numpy as np
        >>> np.argmax(ArgmaxPredictions(np.array([[2, 1], [3, -100]])), axis=-1).tolist()
        [[2, 1], [3, 0]]
    """

    def __init__(self, ids: npt.NDArray[Any]) -> None:
        self._ids: npt.NDArray[Any] = np.where(ids < 0, 0, ids)

    def argmax(self, axis: int | None = None) -> npt.NDArray[Any]:
        """Return the ids (n, ...).

        Raises:
            ValueError: another axis than the last one of the logits.
        """
        if axis not in (-1, self._ids.ndim):
            raise ValueError(
                f"argmax over axis {axis} of predictions of which only the argmax over the last axis was kept; set "
                'eval_predictions="logits".'
            )
        return self._ids.copy()

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.argmax:
            return self.argmax(*args[1:], **kwargs)
        raise TypeError(self._refusal(function.__name__))

    def __array__(self, *args: Any, **kwargs: Any) -> npt.NDArray[Any]:
        raise TypeError(self._refusal("reading them as an array"))

    @staticmethod
    def _refusal(use: str) -> str:
        return (
            f"only the argmax of the predictions was kept, and {use} needs more; set eval_predictions="
            '"logits" (kept as they are) or "argmax" (the ids themselves).'
        )


class FunctionMetric(CollectedMetric):
    """A function of an ``EvalPrediction``, called once on the rows of all ranks.

    Where its source shows that it takes the argmax of its predictions and nothing else (``infer_reduction``), only the
    argmax is kept, and the function is given ``ArgmaxPredictions`` and returns what it would have. A tuple of several
    predictions, ids and real-valued heads pass as they are.

    Args:
        function: called with one ``EvalPrediction``; returns a mapping.
        eval_predictions: ``argmax``: the function is given the ids themselves; ``logits``: the model's output; None:
            inferred.
    """

    takes_batches = True

    def __init__(self, function: MetricFunction, eval_predictions: Literal["argmax", "logits"] | None = None) -> None:
        self._function = function
        self._named = eval_predictions
        self._inferred: dict[int, bool] = {}
        self._hidden = False
        self.form = "argmax" if eval_predictions == "argmax" or self._is_only_argmax(None) else "logits"

    def _is_only_argmax(self, ndim: int | None) -> bool:
        key = -1 if ndim is None else ndim
        if key not in self._inferred:
            inferred = self._named is None and infer_reduction(self._function, ndim=ndim) == "argmax"
            self._inferred[key] = inferred
        return self._inferred[key]

    def reduce(self, predictions: Any, labels: Any) -> Any:
        """Reduce to ids where that was named or is sure to change nothing."""
        if self._named == "argmax":
            return argmax_ids(predictions)
        is_logits = hasattr(predictions, "argmax") and predictions.ndim > 1 and is_floating(predictions)
        self._hidden = is_logits and self._is_only_argmax(predictions.ndim)
        self.form = "argmax" if self._hidden else "logits"
        return predictions.argmax(-1) if self._hidden else predictions

    def compute_rows(self, predictions: Any, labels: Any, inputs: Any = None, losses: Any = None) -> dict[str, Any]:
        """Call the function.

        Raises:
            TypeError: it returned no mapping.
        """
        shown = ArgmaxPredictions(predictions) if self._hidden else predictions
        return _mapping(self._function(eval_prediction(shown, labels, inputs, losses)))


class BatchFunctionMetric(StreamingMetric):
    """A function in upstream's ``batch_eval_metrics`` style, called with every batch and ``compute_result``.

    The last batch alone is passed with ``compute_result=True``, so that one batch is held back. The function keeps its
    own state, which cannot be merged: every rank calls it with the rows of all.

    Args:
        function: called as ``function(eval_prediction, compute_result=...)``.
    """

    sharing = "rows"

    def __init__(self, function: MetricFunction) -> None:
        self._function = function
        self._held: tuple[Any, Any] | None = None

    def reduce(self, predictions: Any, labels: Any) -> Any:
        """Return the predictions as they are: they are used up at once."""
        return predictions

    def reset(self) -> None:
        """Drop a batch that an evaluation that was left has held back; the function's own state is its own."""
        self._held = None

    def update(self, predictions: Any, labels: Any) -> None:
        """Pass on the batch before this one."""
        if self._held is not None:
            self._call(compute_result=False)
        self._held = (predictions, labels)

    def compute(self) -> dict[str, Any]:
        """Pass on the last batch and return the function's result; empty where there was no batch.

        Raises:
            TypeError: the function returned no mapping.
        """
        if self._held is None:
            return {}
        result = self._call(compute_result=True)
        self._held = None
        return _mapping(result)

    def _call(self, *, compute_result: bool) -> Any:
        predictions, labels = self._held or (None, None)
        return self._function(eval_prediction(predictions, labels, None, None), compute_result=compute_result)


def eval_prediction(predictions: Any, labels: Any, inputs: Any, losses: Any) -> Any:
    """Return upstream's ``EvalPrediction``, with inputs and losses only where they are asked for."""
    from transformers import EvalPrediction

    extra = {"inputs": inputs, "losses": losses}
    return EvalPrediction(predictions, labels, **{key: value for key, value in extra.items() if value is not None})


def _mapping(result: Any) -> dict[str, Any]:
    if not isinstance(result, Mapping):
        raise TypeError(
            f"compute_metrics returned {type(result).__name__}; allowed is a dictionary of names and numbers, "
            'e.g. return {"accuracy": value}.'
        )
    return dict(result)
