"""One class a row: sequence and image classification, multiple choice, next sentence prediction."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hf_trainplus.evaluation.loss_kinds.base import IGNORED_LABEL, ExampleLosses, Inputs, Outputs, find_logits
from hf_trainplus.evaluation.loss_kinds.cross_entropy import row_cross_entropy


@dataclass(frozen=True)
class SingleLabelLoss:
    """Cross entropy of one class a row; a row labelled -100 has no target.

    Args:
        label_name: key of the (batch,) or (batch, 1) integer labels in the inputs.

    Example:
        >>> losses = SingleLabelLoss().example_losses(torch.zeros(2, 4), {"labels": torch.tensor([3, -100])})
        >>> losses.target_count.tolist()
        [1, 0]
    """

    label_name: str = "labels"
    name: str = "single_label_classification"

    def example_losses(self, outputs: Outputs, inputs: Inputs) -> ExampleLosses | None:
        """Return the losses of each row, or None where logits or labels are missing or do not fit each other."""
        logits, labels = find_logits(outputs), self._labels(inputs)
        if logits is None or labels is None or logits.shape[:-1] != labels.shape:
            return None
        return row_cross_entropy(logits, labels)

    def count_targets(self, inputs: Inputs) -> torch.Tensor | None:
        """Return the (batch,) number of targets, 0 or 1, or None without labels."""
        labels = self._labels(inputs)
        return None if labels is None else (labels != IGNORED_LABEL).to(torch.int64)

    def _labels(self, inputs: Inputs) -> torch.Tensor | None:
        labels = inputs.get(self.label_name)
        if not isinstance(labels, torch.Tensor) or labels.is_floating_point() or labels.numel() != len(labels):
            return None
        return labels.reshape(-1)
