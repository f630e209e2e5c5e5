"""Causal language models: position t predicts the label at t + 1."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from hf_trainplus.evaluation.loss_kinds.base import IGNORED_LABEL, ExampleLosses, Inputs, Outputs, find_logits
from hf_trainplus.evaluation.loss_kinds.cross_entropy import row_cross_entropy


@dataclass(frozen=True)
class CausalLMLoss:
    """Cross entropy of the next token (``ForCausalLMLoss``); the label of the first position is never a target.

    Where the logits are longer than the labels (prompt tuning puts virtual tokens in front), the labels belong to the
    last positions, as in PEFT. It adds no auxiliary loss, e.g. of a mixture of experts' router.

    Args:
        label_name: key of the labels in the inputs; ``shift_labels``, where present, are used unshifted instead.

    Example:
        >>> CausalLMLoss().example_losses(torch.zeros(1, 3, 4), {"labels": torch.tensor([[2, 1, 0]])}).target_count
        tensor([2])
    """

    label_name: str = "labels"
    name: str = "causal_lm"

    def example_losses(self, outputs: Outputs, inputs: Inputs) -> ExampleLosses | None:
        """Return the losses of each row, or None where logits or labels are missing or do not fit each other."""
        logits = find_logits(outputs)
        targets = next_token_targets(inputs, self.label_name, None if logits is None else logits.shape[1])
        if logits is None or targets is None or logits.shape[:-1] != targets.shape:
            return None
        return row_cross_entropy(logits, targets)

    def count_targets(self, inputs: Inputs) -> torch.Tensor | None:
        """Return the (batch,) number of targets, position 0 left out, or None without labels."""
        targets = next_token_targets(inputs, self.label_name, None)
        return None if targets is None else (targets != IGNORED_LABEL).sum(1)


def next_token_targets(inputs: Inputs, label_name: str, length: int | None) -> torch.Tensor | None:
    """Align the labels with the positions that predict them.

    Args:
        inputs: the batch.
        label_name: key of the labels.
        length: number of positions of the logits; None means as many as there are labels.

    Returns:
        (batch, length) label that each position predicts, -100 for none; None without two-dimensional labels, or
        with more labels than positions.

    Example:
        >>> next_token_targets({"labels": torch.tensor([[5, 6, 7]])}, "labels", None).tolist()
        [[6, 7, -100]]
    """
    shifted = inputs.get("shift_labels")
    if isinstance(shifted, torch.Tensor):
        return shifted
    labels = inputs.get(label_name)
    if not isinstance(labels, torch.Tensor) or labels.dim() != 2 or labels.is_floating_point():
        return None
    in_front = (length or labels.shape[1]) - labels.shape[1]
    if in_front < 0:
        return None
    return functional.pad(labels, (in_front, 1), value=IGNORED_LABEL)[:, 1:]
