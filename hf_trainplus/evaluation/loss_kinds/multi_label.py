"""Several independent labels a row: binary cross entropy of each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from hf_trainplus.evaluation.loss_kinds.base import ExampleLosses, Inputs, Outputs, find_logits, sum_rows


@dataclass(frozen=True)
class MultiLabelLoss:
    """Binary cross entropy of every label entry, in float32; each entry is one target, and none can be ignored.

    Args:
        label_name: key of the (batch, labels) labels, 0 to 1, in the inputs.

    Example:
        >>> losses = MultiLabelLoss().example_losses(torch.zeros(1, 2), {"labels": torch.tensor([[0.0, 1.0]])})
        >>> round(losses.loss_sum.item(), 4), losses.target_count.tolist()
        (1.3863, [2])
    """

    label_name: str = "labels"
    name: str = "multi_label_classification"

    def example_losses(self, outputs: Outputs, inputs: Inputs) -> ExampleLosses | None:
        """Return the losses of each row, or None where logits or labels are missing or do not fit each other."""
        logits, labels, counts = find_logits(outputs), inputs.get(self.label_name), self.count_targets(inputs)
        if logits is None or counts is None or labels is None or logits.shape != labels.shape:
            return None
        targets = labels.to(logits.device, torch.float32)
        losses = functional.binary_cross_entropy_with_logits(logits.detach().float(), targets, reduction="none")
        return sum_rows(losses, counts.to(logits.device))

    def count_targets(self, inputs: Inputs) -> torch.Tensor | None:
        """Return the (batch,) number of label entries, or None without labels."""
        return count_entries(inputs.get(self.label_name))


def count_entries(labels: object) -> torch.Tensor | None:
    """Return the (batch,) number of label entries of each row, or None where the labels are not a tensor of rows."""
    if not isinstance(labels, torch.Tensor) or labels.dim() == 0 or len(labels) == 0:
        return None
    return torch.full((len(labels),), labels.numel() // len(labels), dtype=torch.int64, device=labels.device)
