"""The parts of a causal language model that a loss without logits needs, or why it cannot be had."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedModel

from hf_trainplus.evaluation.loss_kinds.model_class import (
    find_pretrained,
    kind_of_model,
    trainer_shifts_smoothed_labels,
)
from hf_trainplus.evaluation.loss_kinds.output_head import find_linear_head


@dataclass(frozen=True)
class CausalParts:
    """A causal language model of transformers and its output embedding.

    Args:
        pretrained: the model inside its wrappers.
        head: its output embedding, a plain linear map.
    """

    pretrained: PreTrainedModel
    head: nn.Linear


def find_causal_parts(model: nn.Module, *, label_smoothing: float = 0.0) -> CausalParts | str:
    """Return the parts, or the reason why the loss of this model needs its logits; it runs nothing.

    Args:
        model: the model, wrapped or not.
        label_smoothing: ``label_smoothing_factor``, in [0, 1].
    """
    pretrained = find_pretrained(model)
    if pretrained is None or kind_of_model(pretrained) != "causal_lm":
        return f"{type(model).__name__} is no causal language model of transformers"
    if label_smoothing > 0 and not trainer_shifts_smoothed_labels(model):
        return f"Trainer smooths the labels of {type(model).__name__} without shifting them"
    head = find_linear_head(pretrained)
    if head is None:
        return f"the output embedding of {type(pretrained).__name__} is not a plain linear map"
    obstacle = _obstacle(model, head)
    return CausalParts(pretrained, head) if obstacle is None else obstacle


def _obstacle(model: nn.Module, head: nn.Linear) -> str | None:
    if hasattr(head, "_hf_hook") or head.weight.is_meta:
        return "the output embedding is offloaded from the device"
    if isinstance(model, nn.DataParallel):
        return "torch.nn.DataParallel runs copies of the model; launch one process a device instead"
    inner = getattr(model, "_orig_mod", model)
    if any(getattr(module, "_compiled_call_impl", None) is not None for module in inner.modules()):
        return "parts of the model are compiled in place"
    return None
