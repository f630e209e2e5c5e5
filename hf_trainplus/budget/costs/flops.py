"""Floating-point operations of training and evaluation, from a model's shape. Pure.

Sources: 6·N·D and its parts, 2·N forward, 2·N for the gradient of inputs, 2·N for that of weights, a token (Kaplan et
al. 2020, "Scaling laws for neural language models", section 2.1); the attention term 12·L·H·Q·T a token (Chowdhery et
al. 2022, "PaLM", appendix B); one more forward pass of the blocks with checkpointing (Chen et al. 2016).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, fsum, inf
from typing import Literal

from hf_trainplus.budget.costs.model_shape import Attention, ModelShape, Side

AttentionKernel = Literal["dense", "skipping"]


@dataclass(frozen=True)
class Tokens:
    """How many tokens go through, and how long their sequences are.

    Args:
        tokens: input tokens in all, > 0.
        length: tokens a sequence; None when unknown, which leaves attention out.
        target_tokens: tokens of the decoder's side, None without one.
        target_length: their length a sequence.
        kernel: ``"dense"`` multiplies every query with every key and masks afterwards (eager attention, and what
            PyTorch's counter counts); ``"skipping"`` leaves out what a causal mask or a window hides (flash attention).

    Raises:
        ValueError: a number that is not above 0, or targets without a length.
    """

    tokens: float
    length: float | None = None
    target_tokens: float | None = None
    target_length: float | None = None
    kernel: AttentionKernel = "dense"

    def __post_init__(self) -> None:
        for name in ("tokens", "length", "target_tokens", "target_length"):
            value = getattr(self, name)
            if value is not None and not 0 < value < inf:
                raise ValueError(f"{name}={value}; allowed are finite numbers above 0.")
        if self.kernel not in ("dense", "skipping"):
            raise ValueError(f"kernel={self.kernel!r}; allowed: 'dense', 'skipping'.")

    def counts(self) -> Mapping[Side, float]:
        """Return the tokens of each side."""
        sequences = self.tokens / self.length if self.length else 0.0
        return {"input": self.tokens, "target": self.target_tokens or self.tokens, "sequence": sequences}

    def length_of(self, side: Side) -> float | None:
        """Return the tokens a sequence of one side."""
        return (self.target_length or self.length) if side == "target" else self.length


@dataclass(frozen=True)
class Flops:
    """Operations by what they are for.

    Args:
        forward: weights times tokens, forward.
        attention: queries times keys and probabilities times values, forward.
        input_gradient: gradients that go on to earlier layers, attention's included.
        weight_gradient: gradients of the trainable weights.
        recomputation: the second forward pass of gradient checkpointing.
    """

    forward: float
    attention: float
    input_gradient: float = 0.0
    weight_gradient: float = 0.0
    recomputation: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return self.forward + self.attention + self.input_gradient + self.weight_gradient + self.recomputation


def forward_flops(shape: ModelShape, tokens: Tokens) -> Flops:
    """Return the operations of one forward pass over the tokens, as in an evaluation: 2·N·D plus attention.

    It leaves out norms, activations, softmax and the loss, which are no matrix products, and generation.

    Example:
        >>> forward_flops(ModelShape.of_count(175e9), Tokens(1e6)).total
        3.5e+17
    """
    counts = tokens.counts()
    return Flops(
        forward=fsum(2 * one.weights * one.share * counts[one.side] for one in shape.products),
        attention=fsum(_attention(one, tokens) for one in shape.attention),
    )


def training_flops(shape: ModelShape, tokens: Tokens, *, gradient_checkpointing: bool = False) -> Flops:
    """Return the operations of training on the tokens: 6·N·D plus attention for a dense model trained as a whole.

    Frozen weights cost no gradient of their own; inputs get one only where something trainable lies before. With
    checkpointing all of them do, and all blocks are computed again: transformers then lets the gradient go on to the
    embeddings, frozen or not (``enable_input_require_grads``).

    Args:
        shape: the model.
        tokens: what it is trained on, repeated epochs included.
        gradient_checkpointing: whether blocks are computed a second time in the backward pass.

    Example:
        >>> training_flops(ModelShape.of_count(175e9), Tokens(300e9)).total
        3.15e+23
    """
    counts = tokens.counts()
    once = [(one, 2 * one.weights * one.share * counts[one.side]) for one in shape.products]
    looks = [(one, _attention(one, tokens)) for one in shape.attention]
    everywhere = gradient_checkpointing
    again = fsum(cost for one, cost in once if one.in_block) + fsum(cost for _, cost in looks)
    return Flops(
        forward=fsum(cost for _, cost in once),
        attention=fsum(cost for _, cost in looks),
        # both factors of attention's products come from activations, so each product has two gradients
        input_gradient=fsum(cost for one, cost in once if one.input_gradient or everywhere)
        + fsum(2 * cost for one, cost in looks if one.gradient or everywhere),
        weight_gradient=fsum(cost for one, cost in once if one.trainable),
        recomputation=again if gradient_checkpointing else 0.0,
    )


def _attention(one: Attention, tokens: Tokens) -> float:
    keys = tokens.length_of(one.keys)
    if keys is None:
        return 0.0
    if one.banded and one.window is not None and tokens.kernel == "dense":
        return one.layers * 2 * _in_chunks(keys, one, one.window) * tokens.counts()[one.queries]
    seen = keys if tokens.kernel == "dense" else _seen(keys, one)
    return one.layers * 2 * (one.width + one.value_width) * seen * tokens.counts()[one.queries]


def _in_chunks(length: float, one: Attention, window: int) -> float:
    """Products a query in chunks of one window that overlap by half: scores of whole chunks, values of one and a half.

    Source: Beltagy et al. 2020, "Longformer", appendix A, and its code in transformers, which pads to whole windows.
    """
    padded = ceil(length / window) * window
    scores = 2 * padded * window - window**2
    return (one.width * scores + one.value_width * 1.5 * window * padded) / length


def _seen(length: float, one: Attention) -> float:
    """Mean number of keys that a query is multiplied with when hidden ones are skipped."""
    window = min(length, one.window or length)
    if not one.causal:
        return window
    return window - window * (window - 1) / (2 * length)
