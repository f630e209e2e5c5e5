"""Running a causal language model up to its output embedding, and a small batch to try a loss on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from hf_trainplus.evaluation.loss_kinds.base import Inputs, Outputs
from hf_trainplus.evaluation.loss_kinds.model_class import unwrap_model

PROBE_TOKENS = 32


@contextmanager
def tapped_head(head: nn.Linear, take: Callable[[torch.Tensor], bool]) -> Iterator[None]:
    """Hand the hidden states in front of the output embedding to ``take`` during a forward pass.

    ``take`` runs inside the pass, where sharded weights (FSDP2, ZeRO-3) are whole and autocast is on. Where it
    returns True the embedding is given no token, so that no logits are made; the model's class and weights stay as
    they are, and the hook is gone afterwards.
    """

    def before_head(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        hidden = args[0] if args else None
        if isinstance(hidden, torch.Tensor) and hidden.dim() == 3 and take(hidden):
            return (hidden[:, :0], *args[1:])
        return None

    handle = head.register_forward_pre_hook(before_head)
    try:
        yield
    finally:
        handle.remove()


def run_without_cache(model: nn.Module, pretrained: PreTrainedModel, inputs: Inputs) -> Outputs:
    """Call the model on the inputs, without building key and value caches, and uncompiled.

    A compiled model would be compiled once more for the tapped head; it runs as it was written instead.
    """
    module = getattr(model, "_orig_mod", model)
    arguments = dict(inputs)
    is_bare = unwrap_model(model) is pretrained
    if is_bare and "use_cache" in inspect.signature(pretrained.forward).parameters:
        arguments.setdefault("use_cache", False)
    with torch.no_grad():
        outputs: Outputs = module(**arguments)
    return outputs


def probe_batch(inputs: Inputs, label_name: str) -> dict[str, torch.Tensor] | None:
    """Cut a batch of one row and at most 32 tokens from a batch, with the tokens themselves as labels.

    Returns:
        Tensors of (1, tokens), or None where the batch has no labels, or tensors that are not (batch, length).

    Example:
        >>> batch = {"input_ids": torch.tensor([[0, 5], [6, 7]]), "attention_mask": torch.tensor([[0, 1], [1, 1]])}
        >>> probe_batch(batch | {"labels": batch["input_ids"]}, "labels")["labels"].tolist()
        [[6, 7]]
    """
    has_labels = label_name in inputs or "shift_labels" in inputs
    tokens = inputs.get("input_ids") if has_labels else None
    if not isinstance(tokens, torch.Tensor) or tokens.dim() != 2 or not is_rectangular(inputs, tokens.shape):
        return None
    row, first = _longest_row(inputs.get("attention_mask"))
    window = slice(first, first + PROBE_TOKENS)
    others = without_labels(inputs, label_name)
    probe = {name: value[row : row + 1, window] for name, value in others.items() if isinstance(value, torch.Tensor)}
    return probe | {label_name: probe["input_ids"]}


def without_labels(inputs: Inputs, label_name: str) -> dict[str, Any]:
    """Return the batch without its labels, shifted or not."""
    return {name: value for name, value in inputs.items() if name not in (label_name, "labels", "shift_labels")}


def is_rectangular(inputs: Inputs, shape: torch.Size) -> bool:
    """Say whether every tensor of a batch has this shape."""
    return all(value.shape == shape for value in inputs.values() if isinstance(value, torch.Tensor))


def _longest_row(attention_mask: object) -> tuple[int, int]:
    if not isinstance(attention_mask, torch.Tensor):
        return 0, 0
    row = int(attention_mask.sum(1).argmax())
    return row, int(attention_mask[row].argmax())
