"""Real-valued labels: squared error of each."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hf_trainplus.evaluation.loss_kinds.base import ExampleLosses, Inputs, Outputs, find_logits, sum_rows
from hf_trainplus.evaluation.loss_kinds.multi_label import count_entries


@dataclass(frozen=True)
class RegressionLoss:
    """Squared error of every label entry, in float32; each entry is one target, so that the mean is the model's.

    Args:
        label_name: key of the (batch,), (batch, 1) or (batch, values) labels in the inputs.

    Example:
        >>> RegressionLoss().example_losses(torch.zeros(2, 1), {"labels": torch.tensor([3.0, 1.0])}).loss_sum.tolist()
        [9.0, 1.0]
    """

    label_name: str = "labels"
    name: str = "regression"

    def example_losses(self, outputs: Outputs, inputs: Inputs) -> ExampleLosses | None:
        """Return the losses of each row, or None where logits or labels are missing or do not fit each other."""
        logits, labels, counts = find_logits(outputs), inputs.get(self.label_name), self.count_targets(inputs)
        if logits is None or counts is None or labels is None:
            return None
        if logits.numel() != labels.numel() or len(logits) != len(labels):
            return None
        targets = labels.to(logits.device, torch.float32).reshape(len(labels), -1)
        errors = logits.detach().float().reshape(len(labels), -1) - targets
        return sum_rows(errors.square_(), counts.to(logits.device))

    def count_targets(self, inputs: Inputs) -> torch.Tensor | None:
        """Return the (batch,) number of label entries, or None without labels."""
        return count_entries(inputs.get(self.label_name))
