"""Which modules pass a gradient on to their input: those with something trainable before it."""

from __future__ import annotations

import re
from collections.abc import Collection

# projections of one block that read the same input: of attention, and of a gated feed-forward part
_SIBLINGS = (
    frozenset(
        f"{name}{ending}"
        for name in ("q", "k", "v", "query", "key", "value")
        for ending in ("", "_proj", "_lin", "_global")
    ),
    frozenset({"gate_proj", "up_proj", "wi_0", "wi_1", "w1", "w3"}),
)
# norms that a block lists after the projections and applies before them
_LISTED_LATE = ("input_layernorm", "layer_norm")
_ADAPTER = "base_model.model."
_CROSS_KEYS = re.compile(
    r"(EncDecAttention\.[kv]|(encoder_attn|crossattention|cross_attn).*\.(k_proj|v_proj|key|value))(\.|$)"
)


def plain_name(name: str) -> str:
    """Return a module's name without what PEFT puts before it.

    Example:
        >>> plain_name("base_model.model.classifier.modules_to_save.default")
        'classifier.modules_to_save.default'
    """
    return name.removeprefix(_ADAPTER)


def reads_encoder(name: str) -> bool:
    """Say whether a module makes the keys or values of a cross-attention, whose input is the encoder's output.

    Example:
        >>> reads_encoder("decoder.block.0.layer.1.EncDecAttention.k"), reads_encoder("decoder.block.0.q")
        (True, False)
    """
    return _CROSS_KEYS.search(name) is not None


class GradientFlow:
    """Follows a model's modules in their order, which is that of its forward pass but for parallel ones.

    Parallel experts are taken as one after another.

    Args:
        trained: names of the modules that have trainable weights of their own.

    Example:
        >>> flow = GradientFlow({"layers.0.q_proj"})
        >>> [flow.reaches(f"layers.0.{name}") for name in ("q_proj", "k_proj", "o_proj")]
        [False, False, True]
    """

    def __init__(self, trained: Collection[str]) -> None:
        self._trained = trained
        self._before = False
        self._place: tuple[str, int] | None = None
        self._at_place = False
        self._at_encoder: bool | None = None
        self._encoder: bool | None = None

    def reaches(self, name: str) -> bool:
        """Say whether the gradient of a module's input is needed.

        Args:
            name: of the module; all modules are asked for, in order.
        """
        self._enter(name)
        found = self._before
        if self._encoder is not None and reads_encoder(name):
            found = self._encoder
        elif self._place is not None and "lora_B" not in name:
            found = self._at_place
        self._before |= name in self._trained
        return found

    def _enter(self, name: str) -> None:
        words = plain_name(name).split(".")
        if "encoder" in words and self._at_encoder is None:
            self._at_encoder = self._before
        if "decoder" in words and self._at_encoder is not None and self._encoder is None:
            # its own input are embeddings; the encoder comes in with the first cross-attention
            self._encoder, self._before = self._before, self._at_encoder
        place = _place(words)
        if place != self._place:
            self._place, self._at_place = place, self._before or self._late_norm(name)
        if self._encoder and reads_encoder(name):
            self._before = True

    def _late_norm(self, name: str) -> bool:
        words = name.split(".")
        above = [".".join(words[:number]) for number in range(len(words))]
        return any(f"{block}.{norm}" in self._trained for block in above[-2:] for norm in _LISTED_LATE)


def _place(words: list[str]) -> tuple[str, int] | None:
    for number, word in enumerate(words):
        for kind, names in enumerate(_SIBLINGS):
            if word in names:
                return ".".join(words[:number]), kind
    return None
