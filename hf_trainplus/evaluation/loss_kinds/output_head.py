"""The output embedding of a language model as a linear map, with what the model does to the logits behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

_FACTORS = ("logit_scale", "lm_head_multiplier")
_DIVISORS = ("logits_scaling",)
_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")


@dataclass(frozen=True)
class LogitTransform:
    """What a model does to every logit behind its output embedding; it knows nothing of tokens or labels.

    Args:
        factor: multiplies the logits (Cohere, Falcon-H1).
        divisor: divides the logits (Granite).
        cap: bounds the logits softly, ``cap * tanh(logits / cap)`` (Gemma 2 and 3); None leaves them.
    """

    factor: float = 1.0
    divisor: float = 1.0
    cap: float | None = None

    def apply_(self, logits: torch.Tensor) -> torch.Tensor:
        """Transform the logits in place, in their dtype, as the models do.

        Example:
            >>> LogitTransform(divisor=2.0).apply_(torch.tensor([3.0])).tolist()
            [1.5]
        """
        if self.factor != 1.0:
            logits.mul_(self.factor)
        if self.divisor != 1.0:
            logits.div_(self.divisor)
        if self.cap is not None:
            logits.div_(self.cap).tanh_().mul_(self.cap)
        return logits


def candidate_transforms(model: PreTrainedModel) -> list[LogitTransform]:
    """Return the transforms that the configuration allows, the likeliest first.

    A field's name does not settle its meaning (``logits_scaling`` divides in Granite and multiplies in HyperCLOVA X;
    some configurations hold a field their model never reads), so the right one is found by comparing losses.
    """
    config = model.config.get_text_config()
    factors = [float(value) for value in _numbers(config, _FACTORS)]
    divisors = [float(value) for value in _numbers(config, _DIVISORS)]
    cap = next(_numbers(config, _CAPS), None)
    factor, divisor = (values[0] if values else 1.0 for values in (factors, divisors))
    wanted = [
        LogitTransform(factor, divisor, cap),
        LogitTransform(factor * divisor, 1.0, cap),
        LogitTransform(1.0, 1.0, cap),
        LogitTransform(),
    ]
    return list(dict.fromkeys(wanted))


def _numbers(config: object, names: tuple[str, ...]) -> Iterator[float]:
    values = (getattr(config, name, None) for name in names)
    return (value for value in values if isinstance(value, float | int) and not isinstance(value, bool) and value != 0)


def find_linear_head(model: PreTrainedModel) -> nn.Linear | None:
    """Return the output embedding where it is a plain linear map of floating weights, else None.

    Quantized layers, adapters on the head and replaced ``forward`` methods are none. FSDP gives the layer a subclass
    that changes no arithmetic, which counts as plain.
    """
    head: object = model.get_output_embeddings()  # type: ignore[no-untyped-call, unused-ignore]
    if not isinstance(head, nn.Linear) or type(head).forward is not nn.Linear.forward or "forward" in vars(head):
        return None
    return head if head.weight.is_floating_point() else None
