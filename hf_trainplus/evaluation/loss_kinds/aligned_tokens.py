"""Heads whose position t predicts the label at t: masked language models, decoders of encoder-decoders, taggers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hf_trainplus.evaluation.loss_kinds.base import IGNORED_LABEL, ExampleLosses, Inputs, Outputs, find_logits
from hf_trainplus.evaluation.loss_kinds.cross_entropy import row_cross_entropy


@dataclass(frozen=True)
class AlignedTokenLoss:
    """Cross entropy of a class at each position, without a shift.

    Args:
        name: ``"masked_lm"``, ``"seq2seq"``, ``"token_classification"`` or ``"unshifted_lm"``.
        label_name: key of the labels in the inputs.

    Example:
        >>> kind = AlignedTokenLoss("masked_lm")
        >>> kind.example_losses(torch.zeros(1, 3, 4), {"labels": torch.tensor([[2, -100, 0]])}).target_count.tolist()
        [2]
    """

    name: str
    label_name: str = "labels"

    def example_losses(self, outputs: Outputs, inputs: Inputs) -> ExampleLosses | None:
        """Return the losses of each row, or None where logits or labels are missing or do not fit each other."""
        logits, labels = find_logits(outputs), _class_labels(inputs, self.label_name)
        if logits is None or labels is None or logits.shape[:-1] != labels.shape:
            return None
        return row_cross_entropy(logits, labels)

    def count_targets(self, inputs: Inputs) -> torch.Tensor | None:
        """Return the (batch,) number of targets, or None without labels."""
        labels = _class_labels(inputs, self.label_name)
        return None if labels is None else (labels != IGNORED_LABEL).reshape(len(labels), -1).sum(1)


def _class_labels(inputs: Inputs, label_name: str) -> torch.Tensor | None:
    labels = inputs.get(label_name)
    if not isinstance(labels, torch.Tensor) or labels.dim() < 2 or labels.is_floating_point():
        return None
    return labels
