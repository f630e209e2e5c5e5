"""The reduced forms of a batch's predictions: what a metric needs of the model's output, and nothing more.

All functions work on torch tensors (where they lie, e.g. on the device) and on numpy arrays, and import neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

PredictionForm = Literal["argmax", "logits", "scores", "multihot", "losses"]
"""``argmax``: ids of the largest logit; ``logits``: as the model gives them; ``scores``: one real number a row (or one
a class); ``multihot``: 0/1 a label; ``losses``: no predictions, but the loss sum and the target count of each row."""

IGNORE_INDEX = -100


def main_prediction(output: Any) -> Any:
    """Take the main logits out of what a model returned beside its loss.

    The first item of a tuple, list or mapping counts, as upstream's heads order them (``logits`` where it is named);
    cache objects and hidden states behind it are dropped.
    """
    while isinstance(output, (tuple, list, Mapping)):
        if isinstance(output, Mapping):
            output = output["logits"] if "logits" in output else next(iter(output.values()))
        else:
            output = output[0]
    return output


def argmax_ids(output: Any) -> Any:
    """Reduce logits (..., C) to ids (...); ids that come in already (an integer type) pass as they are.

    Raises:
        ValueError: there is one column only, whose argmax would be 0 in every row.
    """
    logits = main_prediction(output)
    if not is_floating(logits):
        return logits
    if logits.ndim < 2 or logits.shape[-1] == 1:
        raise ValueError(
            f"the model's output has shape {tuple(logits.shape)}, one value a row: that is a regression head and has "
            'no class ids; use load_metric("mse") or another metric of scores, or give ids.'
        )
    return logits.argmax(-1)


def scalar_scores(output: Any) -> Any:
    """Reduce a regression head's (n, 1) to (n,); wider output passes."""
    logits = main_prediction(output)
    if logits.ndim == 2 and logits.shape[-1] == 1:
        return logits[:, 0]
    return logits


def multihot_labels(output: Any, threshold: float = 0.0) -> Any:
    """Reduce the logits of independent labels (..., C) to 0/1; logit 0 is probability 0.5."""
    logits = main_prediction(output)
    return logits > threshold if is_floating(logits) else logits


def ranking_scores(output: Any) -> npt.NDArray[np.float64]:
    """Reduce logits to what orders rows by class, in float64 on the host.

    One column gives itself, two give the logit of class 1 over class 0 (which orders rows as the probability of class 1
    does), more give softmax probabilities (n, C).
    """
    # in float64, since a difference or a softmax in half precision makes ties that the logits do not have
    logits = to_numpy(main_prediction(output)).astype(np.float64)
    if logits.ndim < 2:
        return logits
    if logits.shape[-1] <= 2:
        return np.asarray(logits[..., -1] - logits[..., 0] if logits.shape[-1] == 2 else logits[..., 0])
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def to_numpy(values: Any) -> npt.NDArray[Any]:
    """Turn a tensor, array or nested list into a numpy array; bfloat16 and float16 become float32."""
    if hasattr(values, "detach"):
        tensor = values.detach().cpu()
        return np.asarray(tensor.float() if is_floating(tensor) and tensor.element_size() < 4 else tensor)
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def is_floating(values: Any) -> bool:
    """Say whether a tensor or an array holds real numbers, as logits do and ids do not."""
    if hasattr(values, "is_floating_point"):
        return bool(values.is_floating_point())
    return bool(np.issubdtype(np.asarray(values).dtype, np.floating))
