"""Per-example losses of models that return log-probabilities of their targets in place of logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from hf_trainplus.evaluation.losses import ExampleLosses


def fused_head_losses(outputs: Any) -> ExampleLosses | None:
    """Read the rows' losses from ``log_probs`` and ``label_mask``, the outputs of TRL's fused head.

    Args:
        outputs: what the model returned.

    Returns:
        The losses, or None when the outputs are of another kind.

    Example:
        >>> import torch
        >>> outputs = {"log_probs": torch.tensor([[-1.0, -2.0]]), "label_mask": torch.tensor([[True, True]])}
        >>> losses = fused_head_losses(outputs)
        >>> losses.loss_sum.tolist(), losses.target_count.tolist()
        ([3.0], [2])
    """
    log_probs, mask = _field(outputs, "log_probs"), _field(outputs, "label_mask")
    if log_probs is None or mask is None or log_probs.shape != mask.shape or log_probs.ndim != 2:
        return None
    counted = mask.bool()
    losses = torch.where(counted, -log_probs.float(), torch.zeros((), device=log_probs.device))
    return ExampleLosses(losses.double().sum(1), counted.sum(1))


def _field(outputs: Any, name: str) -> torch.Tensor | None:
    value = outputs.get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)
    return value if isinstance(value, torch.Tensor) else None
