"""The loss that ``Trainer`` takes in place of the model's own under ``label_smoothing_factor``."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hf_trainplus.evaluation.loss_kinds.aligned_tokens import AlignedTokenLoss
from hf_trainplus.evaluation.loss_kinds.base import ExampleLosses, Inputs, Outputs, find_logits
from hf_trainplus.evaluation.loss_kinds.causal_lm import CausalLMLoss, next_token_targets
from hf_trainplus.evaluation.loss_kinds.cross_entropy import row_cross_entropy
from hf_trainplus.evaluation.loss_kinds.single_label import SingleLabelLoss


@dataclass(frozen=True)
class SmoothedLoss:
    """Cross entropy whose target is (1 - epsilon) the label and epsilon the mean of all classes.

    The formula, and the rule when labels are shifted, are those of ``transformers.trainer_pt_utils.LabelSmoother`` as
    ``Trainer.compute_loss`` calls it; the softmax is in float32. It applies to integer labels under the key ``labels``,
    which is the only key that ``Trainer`` smooths.

    Args:
        epsilon: ``label_smoothing_factor``, in (0, 1].
        shifted: position t predicts the label at t + 1, as for the causal language models of transformers.

    Example:
        >>> kind = SmoothedLoss(0.1, shifted=True)
        >>> kind.example_losses(torch.zeros(1, 3, 4), {"labels": torch.tensor([[2, 1, 0]])}).target_count.tolist()
        [2]
    """

    epsilon: float
    shifted: bool
    name: str = "label_smoothing"

    def example_losses(self, outputs: Outputs, inputs: Inputs) -> ExampleLosses | None:
        """Return the losses of each row, or None where logits or labels are missing or do not fit each other."""
        logits, targets = find_logits(outputs), self._targets(inputs)
        if logits is None or targets is None or logits.shape[:-1] != targets.shape:
            return None
        return row_cross_entropy(logits, targets, label_smoothing=self.epsilon)

    def count_targets(self, inputs: Inputs) -> torch.Tensor | None:
        """Return the (batch,) number of targets, or None without labels."""
        if self.shifted:
            return CausalLMLoss().count_targets(inputs)
        single = SingleLabelLoss().count_targets(inputs)
        return AlignedTokenLoss("smoothed").count_targets(inputs) if single is None else single

    def _targets(self, inputs: Inputs) -> torch.Tensor | None:
        labels = inputs.get("labels")
        if not isinstance(labels, torch.Tensor) or labels.is_floating_point():
            return None
        if self.shifted:
            return next_token_targets({"labels": labels}, "labels", None)
        return labels
