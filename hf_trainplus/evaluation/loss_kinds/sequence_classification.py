"""Sequence, image, video and audio classifiers, whose configuration says which loss they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from hf_trainplus.evaluation.loss_kinds.base import ExampleLosses, Inputs, LossKind, Outputs
from hf_trainplus.evaluation.loss_kinds.multi_label import MultiLabelLoss
from hf_trainplus.evaluation.loss_kinds.regression import RegressionLoss
from hf_trainplus.evaluation.loss_kinds.single_label import SingleLabelLoss


class ClassifierConfig(Protocol):
    """The two fields of a model's configuration that choose a classifier's loss."""

    @property
    def problem_type(self) -> str | None:
        """Name of the loss, or None until the first batch."""

    @property
    def num_labels(self) -> int | None:
        """Number of outputs of the head."""


@dataclass(frozen=True)
class SequenceClassificationLoss:
    """The loss that ``config.problem_type`` names, or that the labels imply where it is unset.

    The configuration is read for each batch: a model fills in ``problem_type`` at its first batch with labels. It is
    never written here.

    Args:
        config: the model's configuration.
        label_name: key of the labels in the inputs.

    Example:
        >>> from transformers import BertConfig
        >>> kind = SequenceClassificationLoss(BertConfig(num_labels=1))
        >>> kind.example_losses(torch.zeros(2, 1), {"labels": torch.tensor([3.0, 1.0])}).loss_sum.tolist()
        [9.0, 1.0]
    """

    config: ClassifierConfig
    label_name: str = "labels"
    name: str = "sequence_classification"

    def example_losses(self, outputs: Outputs, inputs: Inputs) -> ExampleLosses | None:
        """Return the losses of each row, or None where logits or labels are missing or do not fit each other."""
        kind = self._resolve(inputs)
        return None if kind is None else kind.example_losses(outputs, inputs)

    def count_targets(self, inputs: Inputs) -> torch.Tensor | None:
        """Return the (batch,) number of targets, or None without labels."""
        kind = self._resolve(inputs)
        return None if kind is None else kind.count_targets(inputs)

    def _resolve(self, inputs: Inputs) -> LossKind | None:
        labels = inputs.get(self.label_name)
        if not isinstance(labels, torch.Tensor):
            return None
        problem_type = self.config.problem_type or self._implied(labels)
        kinds: dict[str, LossKind] = {
            "regression": RegressionLoss(self.label_name),
            "single_label_classification": SingleLabelLoss(self.label_name),
            "multi_label_classification": MultiLabelLoss(self.label_name),
        }
        return kinds.get(problem_type)

    def _implied(self, labels: torch.Tensor) -> str:
        if self.config.num_labels == 1:
            return "regression"
        is_index = labels.dtype in (torch.int64, torch.int32)
        return "single_label_classification" if is_index else "multi_label_classification"
