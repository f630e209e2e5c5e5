"""Cross entropy of each row, in float32, without a second copy of the logits."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch.nn import functional

from hf_trainplus.evaluation.loss_kinds.base import IGNORED_LABEL, ExampleLosses, sum_rows

CPU_CHUNK_ELEMENTS = 1 << 19
"""Logits handled at once on a CPU: 2 MiB in float32, about a core's second-level cache."""
DEVICE_CHUNK_ELEMENTS = 1 << 25
"""Logits handled at once on an accelerator: 128 MiB in float32, enough to fill it."""


def row_cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, *, label_smoothing: float = 0.0, ignore_index: int = IGNORED_LABEL
) -> ExampleLosses:
    """Sum the cross entropy of each row's targets; logits and labels are aligned, nothing is shifted here.

    The softmax is taken in float32 (float64 for float64 logits) over chunks of positions, so that at most one chunk
    is copied however long the batch; positions without a target are never read.

    Args:
        logits: (batch, ..., classes) scores in any floating dtype.
        labels: (batch, ...) class indices; ``ignore_index`` where there is no target.
        label_smoothing: weight in [0, 1] of the mean over all classes, as in ``transformers``' ``LabelSmoother``.
        ignore_index: the label without a target.

    Returns:
        Losses of (batch,) rows.

    Example:
        >>> losses = row_cross_entropy(torch.zeros(2, 3, 4), torch.tensor([[0, 1, -100], [-100, -100, -100]]))
        >>> [round(value, 4) for value in losses.loss_sum.tolist()], losses.target_count.tolist()
        ([2.7726, 0.0], [2, 0])
    """
    labels = labels.detach().to(logits.device, torch.int64)
    flat_labels = labels.reshape(-1)
    flat_logits = logits.detach().reshape(len(flat_labels), logits.shape[-1])
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    losses = torch.zeros(len(flat_labels), dtype=dtype, device=logits.device)
    for chunk in _target_chunks(flat_labels != ignore_index, classes=flat_logits.shape[1]):
        losses[chunk] = functional.cross_entropy(
            flat_logits[chunk].to(dtype), flat_labels[chunk], reduction="none", label_smoothing=label_smoothing
        )
    counts = (labels != ignore_index).reshape(len(labels), math.prod(labels.shape[1:])).sum(1)
    return sum_rows(losses.reshape(labels.shape), counts)


def _target_chunks(is_target: torch.Tensor, *, classes: int) -> Iterator[slice | torch.Tensor]:
    limit = CPU_CHUNK_ELEMENTS if is_target.device.type == "cpu" else DEVICE_CHUNK_ELEMENTS
    for positions in torch.split(is_target.nonzero().squeeze(1), max(1, limit // max(1, classes))):
        if len(positions) == 0:
            return
        first, last = int(positions[0]), int(positions[-1])
        # Neighbouring positions are read in place: a slice is a view where an index would copy.
        yield slice(first, last + 1) if last - first + 1 == len(positions) else positions
