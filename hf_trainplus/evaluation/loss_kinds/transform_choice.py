"""Finding by comparison what a model does to its logits, and whether its loss follows from them alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from hf_trainplus.evaluation.loss_kinds.base import Inputs, Outputs, find_logits, find_loss
from hf_trainplus.evaluation.loss_kinds.causal_lm import next_token_targets
from hf_trainplus.evaluation.loss_kinds.causal_parts import CausalParts
from hf_trainplus.evaluation.loss_kinds.head_tap import run_without_cache, tapped_head
from hf_trainplus.evaluation.loss_kinds.output_head import LogitTransform, candidate_transforms
from hf_trainplus.evaluation.loss_kinds.projected_rows import CausalExampleLosses, project_rows
from hf_trainplus.evaluation.losses import batch_loss, reproduces


@dataclass
class _Trial:
    dtype: torch.dtype | None = None
    raw_logits: torch.Tensor | None = None
    losses: dict[LogitTransform, CausalExampleLosses] = field(default_factory=dict)


@dataclass(frozen=True)
class TransformChoice:
    """The transform under which the model's logits and loss are reproduced.

    Args:
        transform: what the model does to its logits.
        is_settled: False where the loss was not finite, so that any transform agrees: compare again later.
    """

    transform: LogitTransform
    is_settled: bool


def choose_transform(
    model: nn.Module,
    parts: CausalParts,
    probe: Inputs,
    label_name: str,
    tile: tuple[int, int] | None = None,
    *,
    among: Sequence[LogitTransform] | None = None,
) -> TransformChoice | str:
    """Run the model on a small batch and find the transform that gives its logits and its loss.

    Logits are compared as well as losses: near initialization all logits are small, and a loss alone does not tell a
    factor from its inverse.

    Args:
        model: the model in evaluation mode, wrapped or not.
        parts: its parts.
        probe: a small batch with labels, see ``probe_batch``.
        label_name: key of the labels.
        tile: tokens, and logits, handled at once; None chooses by device.
        among: transforms to try by the loss alone, the likeliest first, for a batch whose logits are to be held no more
            than once; None for those that the configuration allows.

    Returns:
        The choice, or the reason why there is none.
    """
    trial = _Trial()

    def take(hidden: torch.Tensor) -> bool:
        targets = targets_of(hidden, probe, label_name)
        # A weight that is still a DTensor inside the forward pass is split by tensor parallelism.
        if targets is not None and not isinstance(parts.head.weight, DTensor):
            compared = hidden if among is None else hidden[:, :0]
            raw_logits = functional.linear(compared, parts.head.weight, parts.head.bias)
            trial.dtype, trial.raw_logits = raw_logits.dtype, raw_logits if among is None else None
            for transform in among or candidate_transforms(parts.pretrained):
                trial.losses[transform] = project_rows(hidden, parts.head, targets, transform=transform, tile=tile)
        return False

    with tapped_head(parts.head, take):
        outputs = run_without_cache(model, parts.pretrained, probe)
    return _judge(trial, outputs, 1e-5 if among is None else 1e-4)


def targets_of(hidden: torch.Tensor, inputs: Inputs, label_name: str) -> torch.Tensor | None:
    """Return the (batch, length) targets of the hidden states, or None where the labels do not fit them."""
    targets = next_token_targets(inputs, label_name, hidden.shape[1])
    return targets if targets is not None and hidden.shape[:2] == targets.shape else None


def _judge(trial: _Trial, outputs: Outputs, tolerance: float) -> TransformChoice | str:
    own_loss, logits = find_loss(outputs), find_logits(outputs)
    if own_loss is None or trial.dtype is None:
        return "it gives no loss, or its output embedding sees no hidden states of (batch, length)"
    # Below float32 a product of other sizes may round a logit the other way: one unit in 256 for bfloat16.
    tolerance = tolerance if trial.dtype in (torch.float32, torch.float64) else 1e-3
    for transform, losses in trial.losses.items():
        raw = trial.raw_logits
        same_logits = raw is None or logits is None or _is_close(transform.apply_(raw.clone()), logits, tolerance)
        if same_logits and reproduces(losses, own_loss, tolerance=tolerance):
            return TransformChoice(transform, is_settled=bool(own_loss.isfinite().all()))
    ours = ", ".join(f"{float(batch_loss(losses)):.6f}" for losses in trial.losses.values())
    return f"its own loss is {float(own_loss.mean()):.6f} where its output embedding alone gives {ours}"


def _is_close(ours: torch.Tensor, own: torch.Tensor, tolerance: float) -> bool:
    # Relative to the largest logit: small logits carry the rounding of large sums.
    if ours.shape != own.shape:
        return False
    largest = own.abs().max().clamp(min=torch.finfo(torch.float32).tiny)
    return torch.allclose(ours.float() / largest, own.float() / largest, rtol=0.0, atol=tolerance, equal_nan=True)
