"""Which of a model's outputs are its predictions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

_MAIN = ("logits", "prediction_logits", "logits_per_image")
_SPANS = ("start_logits", "end_logits")


def main_predictions(
    returned: Any, outputs: Sequence[Any], *, rows: int, wanted: Collection[str] = (), loss_key: str = "loss"
) -> Any:
    """Choose the predictions that a metric function is given.

    Cache objects, hidden states and other extra outputs are dropped unless ``wanted`` names them.

    Args:
        returned: what the prediction step returned as logits: one tensor, or a tuple of all outputs.
        outputs: what the model itself returned in that step, the last one counts.
        rows: number of rows in the batch.
        wanted: names of further outputs to hand over, behind the main one.
        loss_key: name of the loss among the outputs.

    Returns:
        A tensor of shape (rows, ...), a tuple of such tensors for a model with two heads or with ``wanted`` names, or
        ``returned`` itself where it is no tuple.

    Example:
        >>> import torch
        >>> outputs = {"loss": torch.zeros(()), "logits": torch.zeros(2, 3), "hidden_states": (torch.zeros(2, 4),)}
        >>> main_predictions((outputs["logits"], outputs["hidden_states"]), [outputs], rows=2).shape
        torch.Size([2, 3])
    """
    if not isinstance(returned, (tuple, list)):
        return returned
    named = outputs[-1] if outputs and isinstance(outputs[-1], Mapping) else {}
    main = _main_of(named, rows, loss_key)
    if main is None:
        main = next((value for value in returned if _has_rows(value, rows)), None)
    extra = tuple(named[name] for name in wanted if name in named)
    if not extra:
        return main
    return (*(main if isinstance(main, tuple) else (main,)), *extra)


def _main_of(named: Mapping[str, Any], rows: int, loss_key: str) -> Any:
    if all(name in named for name in _SPANS):
        return tuple(named[name] for name in _SPANS)
    for name in _MAIN:
        if name in named:
            return named[name]
    return next((value for name, value in named.items() if name != loss_key and _has_rows(value, rows)), None)


def _has_rows(value: Any, rows: int) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 0 and value.shape[0] == rows
