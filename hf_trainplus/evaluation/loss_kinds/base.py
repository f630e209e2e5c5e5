"""What a loss kind is, and what it returns: sums and target counts, one entry a row of the batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch

IGNORED_LABEL = -100
"""Label that marks a position without a target, as in every loss of transformers."""

Inputs: TypeAlias = Mapping[str, Any]
Outputs: TypeAlias = Mapping[str, Any] | Sequence[Any] | torch.Tensor


@dataclass(frozen=True)
class ExampleLosses:
    """The losses of one batch, a row an entry; it divides nothing and holds no graph.

    Args:
        loss_sum: (batch,) sum of the losses of the row's targets, float64 (float32 on devices without float64).
        target_count: (batch,) int64 number of the row's targets; 0 for a fully masked row, whose loss_sum is 0.
    """

    loss_sum: torch.Tensor
    target_count: torch.Tensor


class LossKind(Protocol):
    """The formula of one family of model heads; it reads outputs and inputs and never runs a model."""

    @property
    def name(self) -> str:
        """Name of the kind, e.g. ``"causal_lm"``."""

    def example_losses(self, outputs: Outputs, inputs: Inputs) -> ExampleLosses | None:
        """Return the losses of each row, or None where outputs or inputs are not of this kind."""

    def count_targets(self, inputs: Inputs) -> torch.Tensor | None:
        """Return the (batch,) int64 number of targets of each row, or None where the labels are missing."""


def sum_dtype(device: torch.device) -> torch.dtype:
    """Return the widest dtype in which losses can be summed on the device: float64, or float32 where it is absent."""
    if device.type == "mps":
        return torch.float32
    if device.type == "xpu" and not torch.xpu.get_device_properties(device).has_fp64:
        return torch.float32
    return torch.float64


def sum_rows(losses: torch.Tensor, target_count: torch.Tensor) -> ExampleLosses:
    """Sum the losses of each row.

    Args:
        losses: (batch, ...) losses, 0 where there is no target.
        target_count: (batch,) number of targets of each row.
    """
    rows = losses.detach().reshape(len(losses), math.prod(losses.shape[1:]))
    return ExampleLosses(rows.sum(1, dtype=sum_dtype(rows.device)), target_count.to(torch.int64))


def find_logits(outputs: Outputs) -> torch.Tensor | None:
    """Return the main logits of a model's outputs: the key ``logits``, or the first tensor after the loss.

    It returns None where there is no such tensor, e.g. in a dictionary without the key.
    """
    if isinstance(outputs, torch.Tensor):
        return outputs
    if isinstance(outputs, Mapping):
        logits = outputs.get("logits")
        return logits if isinstance(logits, torch.Tensor) else None
    # A loss has no dimension; under torch.nn.DataParallel it has one, an entry a device.
    tensors = [value for value in outputs[:2] if isinstance(value, torch.Tensor) and value.dim() > 1]
    return tensors[0] if tensors else None


def find_loss(outputs: Outputs) -> torch.Tensor | None:
    """Return the loss of a model's outputs: the key ``loss``, or the first entry, or None where there is none."""
    if isinstance(outputs, torch.Tensor):
        return None
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else next(iter(outputs), None)
    return loss if isinstance(loss, torch.Tensor) and loss.dim() < 2 else None
