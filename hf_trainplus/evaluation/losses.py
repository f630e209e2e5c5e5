"""Per-example losses of a model's outputs, and the checks that they are the losses the model itself takes.

A loss kind is a formula, found from the model's class; it counts only while it reproduces the batch's own loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from hf_trainplus.evaluation.loss_kinds.aligned_tokens import AlignedTokenLoss
from hf_trainplus.evaluation.loss_kinds.base import IGNORED_LABEL, ExampleLosses, Inputs, LossKind, Outputs
from hf_trainplus.evaluation.loss_kinds.causal_lm import CausalLMLoss
from hf_trainplus.evaluation.loss_kinds.label_smoothing import SmoothedLoss
from hf_trainplus.evaluation.loss_kinds.model_class import (
    find_pretrained,
    kind_of_model,
    trainer_shifts_smoothed_labels,
)
from hf_trainplus.evaluation.loss_kinds.question_answering import QuestionAnsweringLoss
from hf_trainplus.evaluation.loss_kinds.sequence_classification import SequenceClassificationLoss
from hf_trainplus.evaluation.loss_kinds.single_label import SingleLabelLoss

__all__ = [
    "ExampleLosses",
    "Inputs",
    "LossKind",
    "Outputs",
    "batch_loss",
    "count_targets",
    "find_loss_kind",
    "reproduces",
]

_TOKEN_KINDS = ("masked_lm", "seq2seq", "token_classification", "unshifted_lm")


def find_loss_kind(
    model: nn.Module, *, label_names: Sequence[str] | None = None, label_smoothing: float = 0.0
) -> LossKind | None:
    """Find the formula of the loss that the model, or ``Trainer`` in its place, takes of a batch.

    It looks through PEFT, DDP, FSDP, DeepSpeed, ``torch.compile`` and a module that holds one transformers model, and
    runs nothing. The answer is a well-founded guess: check it with ``reproduces`` on the first batches, since a
    subclass may compute another loss.

    Args:
        model: the model that is evaluated, wrapped or not.
        label_names: keys of the labels in a batch; None means ``labels``, or ``start_positions`` and
            ``end_positions`` for question answering.
        label_smoothing: ``label_smoothing_factor`` of the training arguments, in [0, 1].

    Returns:
        The loss kind, or None for a model whose loss is not known.

    Raises:
        ValueError: label smoothing outside [0, 1].

    Example:
        >>> from transformers import BertConfig, BertForMaskedLM
        >>> sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "vocab_size": 16}
        >>> find_loss_kind(BertForMaskedLM(BertConfig(**sizes))).name
        'masked_lm'
    """
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(
            f"label_smoothing is {label_smoothing}; allowed are values from 0 to 1: pass "
            "label_smoothing=args.label_smoothing_factor."
        )
    pretrained = find_pretrained(model)
    if pretrained is None:
        return None
    kind = kind_of_model(pretrained)
    multi_label = getattr(pretrained.config, "problem_type", None) == "multi_label_classification"
    # Trainer smooths nothing but integer ``labels``: question answering and multi-label heads keep their own loss.
    if label_smoothing > 0 and kind != "question_answering" and not multi_label:
        return SmoothedLoss(label_smoothing, shifted=trainer_shifts_smoothed_labels(model))
    if kind == "question_answering":
        names = list(label_names or ())
        return QuestionAnsweringLoss(*names) if len(names) == 2 else QuestionAnsweringLoss()
    label_name = "labels" if not label_names or "labels" in label_names else label_names[0]
    if kind in _TOKEN_KINDS:
        return AlignedTokenLoss(kind, label_name)
    others: dict[str | None, Callable[[], LossKind]] = {
        "causal_lm": lambda: CausalLMLoss(label_name),
        "single_label": lambda: SingleLabelLoss(label_name),
        "sequence_classification": lambda: SequenceClassificationLoss(pretrained.config, label_name),
    }
    return others[kind]() if kind in others else None


def batch_loss(losses: ExampleLosses) -> torch.Tensor:
    """Form the batch's mean loss from its rows, as the model does: all losses divided by all targets.

    Returns:
        A tensor without dimensions, NaN without any target, as the models have it.

    Example:
        >>> batch_loss(ExampleLosses(torch.tensor([3.0, 1.0]), torch.tensor([3, 1]))).item()
        1.0
    """
    return losses.loss_sum.sum() / losses.target_count.sum()


def reproduces(losses: ExampleLosses, own_loss: torch.Tensor | float, *, tolerance: float = 1e-4) -> bool:
    """Say whether the rows' losses give the loss that the model computed of the batch.

    Args:
        losses: the rows' losses.
        own_loss: the batch's mean loss as the model returned it. Leave it in its dtype: a half-precision loss is
            itself rounded, and is compared to two of its roundings.
        tolerance: largest difference, absolute for losses below 1 and relative above, > 0.

    Returns:
        True also where both are NaN, or both the same infinity.

    Example:
        >>> rows = ExampleLosses(torch.tensor([3.0, 1.0]), torch.tensor([3, 1]))
        >>> reproduces(rows, 1.00001), reproduces(rows, 1.5)
        (True, False)
    """
    if isinstance(own_loss, torch.Tensor):
        if own_loss.dtype in (torch.float16, torch.bfloat16):
            tolerance = max(tolerance, 2 * torch.finfo(own_loss.dtype).eps)
        own_loss = float(own_loss.detach().float().mean())
    ours = float(batch_loss(losses))
    if not math.isfinite(ours) or not math.isfinite(own_loss):
        return ours == own_loss or (math.isnan(ours) and math.isnan(own_loss))
    return abs(ours - own_loss) <= tolerance * max(1.0, abs(own_loss))


def count_targets(kind: LossKind | None, inputs: Inputs, label_names: Sequence[str]) -> torch.Tensor:
    """Count the targets of each row, the weights of a loss that is known for the whole batch only.

    A known kind counts by its own rule (a causal language model never counts position 0). Otherwise integer labels
    count where they are not -100, real-valued labels count every entry, labels that are no tensor count one a row,
    and a batch without labels one a row.

    Args:
        kind: the model's loss kind, or None where it is not known.
        inputs: the batch.
        label_names: keys of the labels in the batch.

    Returns:
        (batch,) int64 counts.

    Raises:
        ValueError: a batch without labels holds no tensor that tells its number of rows.

    Example:
        >>> count_targets(None, {"labels": torch.tensor([[1, -100, 2], [-100, -100, 3]])}, ["labels"]).tolist()
        [2, 1]
    """
    counts = None if kind is None else kind.count_targets(inputs)
    if counts is not None:
        return counts.to(torch.int64)
    columns = [_count_column(inputs[name]) for name in label_names if inputs.get(name) is not None]
    if columns:
        return torch.stack([column.to(columns[0].device) for column in columns]).sum(0)
    first = next((value for value in inputs.values() if isinstance(value, torch.Tensor) and value.dim() > 0), None)
    if first is None:
        raise ValueError(
            f"the batch has the keys {sorted(inputs)} and none holds a tensor of rows; name the labels with "
            "label_names=[...]."
        )
    return torch.ones(len(first), dtype=torch.int64, device=first.device)


def _count_column(labels: torch.Tensor | Sequence[object]) -> torch.Tensor:
    if not isinstance(labels, torch.Tensor):
        return torch.ones(len(labels), dtype=torch.int64)
    rows = labels.reshape(len(labels), -1)
    is_target = torch.ones_like(rows, dtype=torch.bool) if rows.is_floating_point() else rows != IGNORED_LABEL
    return is_target.sum(1)
