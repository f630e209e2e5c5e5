"""Losses of a batch's rows from the hidden states in front of an output embedding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from hf_trainplus.evaluation.loss_kinds.base import IGNORED_LABEL, ExampleLosses, sum_rows
from hf_trainplus.evaluation.loss_kinds.output_head import LogitTransform
from hf_trainplus.evaluation.loss_kinds.projected_cross_entropy import projected_cross_entropy


@dataclass(frozen=True)
class CausalExampleLosses(ExampleLosses):
    """The losses of one batch with the number of targets that the model predicts right.

    Args:
        loss_sum: (batch,) sum of the losses of the row's targets.
        target_count: (batch,) int64 number of the row's targets.
        correct_count: (batch,) int64 number of targets with the largest logit; over target_count, token accuracy.
    """

    correct_count: torch.Tensor


def project_rows(
    hidden: torch.Tensor,
    head: nn.Linear,
    targets: torch.Tensor,
    *,
    transform: LogitTransform,
    label_smoothing: float = 0.0,
    tile: tuple[int, int] | None = None,
) -> CausalExampleLosses:
    """Score the targets of each row; positions without a target are not projected.

    Args:
        hidden: (batch, length, width) hidden states.
        head: the output embedding.
        targets: (batch, length) class that each position predicts, -100 for none.
        transform: what the model does to its logits.
        label_smoothing: weight in [0, 1] of the mean over the vocabulary.
        tile: tokens, and logits, handled at once; None chooses by device.

    Returns:
        Losses of (batch,) rows.

    Example:
        >>> head, targets = nn.Linear(2, 4), torch.tensor([[3, -100], [-100, -100]])
        >>> project_rows(torch.zeros(2, 2, 2), head, targets, transform=LogitTransform()).target_count.tolist()
        [1, 0]
    """
    flat = targets.to(hidden.device, torch.int64).reshape(-1)
    positions = (flat != IGNORED_LABEL).nonzero().squeeze(1)
    scores = projected_cross_entropy(
        hidden.detach().reshape(len(flat), hidden.shape[-1])[positions],
        head.weight,
        head.bias,
        flat[positions],
        transform=transform,
        label_smoothing=label_smoothing,
        tile=tile,
    )
    losses = scores.loss.new_zeros(len(flat)).index_copy_(0, positions, scores.loss)
    correct = torch.zeros_like(flat).index_copy_(0, positions, scores.correct.to(torch.int64))
    rows = sum_rows(losses.view(targets.shape), (flat != IGNORED_LABEL).view(targets.shape).sum(1))
    return CausalExampleLosses(rows.loss_sum, rows.target_count, correct.view(targets.shape).sum(1))
