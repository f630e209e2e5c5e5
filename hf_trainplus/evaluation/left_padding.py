"""Targets that a causal language model would have to predict from padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

IGNORED_LABEL = -100


def without_targets_after_padding(inputs: Mapping[str, Any], label_name: str = "labels") -> Mapping[str, Any]:
    """Mask each row's first real token as a target where padding stands before it.

    A causal model predicts a token from the position before. With padding on the right the first token of a row has
    none and is never a target; with padding on the left it would be predicted from padding, and the loss would depend
    on the padding's side. Rows without padding on the left come back as they are.

    Args:
        inputs: a batch with (rows, length) ``attention_mask`` and labels; others are returned unchanged.
        label_name: key of the labels.

    Returns:
        The same batch, or a copy with other labels.

    Example:
        >>> import torch
        >>> batch = {"attention_mask": torch.tensor([[0, 1, 1], [1, 1, 1]])}
        >>> batch["labels"] = torch.tensor([[-100, 5, 6], [5, 6, 7]])
        >>> without_targets_after_padding(batch)["labels"].tolist()
        [[-100, -100, 6], [5, 6, 7]]
    """
    mask, labels = inputs.get("attention_mask"), inputs.get(label_name)
    if not (isinstance(mask, torch.Tensor) and isinstance(labels, torch.Tensor)):
        return inputs
    if mask.ndim != 2 or mask.shape != labels.shape:
        return inputs
    real = mask.bool()
    first = real[:, 1:] & ~real[:, :-1] & (labels[:, 1:] != IGNORED_LABEL)
    if not bool(first.any()):
        return inputs
    masked = labels.clone()
    masked[:, 1:][first] = IGNORED_LABEL
    copied = dict(inputs)
    copied[label_name] = masked
    return copied
