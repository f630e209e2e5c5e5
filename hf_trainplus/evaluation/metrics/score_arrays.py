"""Real-valued predictions and targets as metrics take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.evaluation.metrics.base import Float64Array
from hf_trainplus.evaluation.metrics.forms import to_numpy


def as_scores(values: Any, metric: str, what: str) -> npt.NDArray[Any]:
    """Read real numbers, in the type that they come in.

    Raises:
        ValueError: the values are no real numbers.
    """
    array = to_numpy(values)
    if array.size and array.dtype.kind not in "biuf":
        raise ValueError(f"{metric} was given {what} of type {array.dtype}; give real numbers, one a row.")
    return array


def score_pairs(predictions: Any, references: Any, metric: str) -> tuple[Float64Array, Float64Array]:
    """Read predictions and targets as float64 of one shape; a last axis of length 1 is dropped.

    Raises:
        ValueError: the shapes differ.
    """
    predicted, true = (
        array[..., 0] if array.ndim > 1 and array.shape[-1] == 1 else array
        for array in (as_scores(predictions, metric, "predictions"), as_scores(references, metric, "references"))
    )
    if predicted.shape != true.shape or true.ndim == 0:
        raise ValueError(
            f"{metric} was given predictions of shape {predicted.shape} and references of shape {true.shape}; give one "
            "number for each target, e.g. logits.squeeze(-1)."
        )
    return predicted.astype(np.float64), true.astype(np.float64)
