"""Memory of one device in training: weights, gradients, optimizer, activations, for each sharding stage. Pure.

Sources: sharding stages as in Rajbhandari et al. 2020, "ZeRO", figure 1; activations by the kind of layer as in
Korthikanti et al. 2022, "Reducing activation recomputation", section 4, written out for norms in float32, gated
feed-forward parts and fused attention, and held against what autograd saves (tests/budget/costs/test_memory.py); FSDP's
``SHARD_GRAD_OP`` as PyTorch documents it: a shard of the weights, and beside it all of them from the forward pass to
the backward pass, in the precision that is computed in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from hf_trainplus.budget.costs.model_shape import ModelShape, Sizes

Sharding = Literal["none", "zero1", "zero2", "zero3", "fsdp_grad_op", "fsdp_full"]
_STAGE = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp_grad_op": 2, "fsdp_full": 3}

# Bytes of optimizer state a trainable parameter: two float32 moments for AdamW, one for momentum, one byte each in
# 8 bits; Adafactor's factored moments are a few thousandths and count as none.
OPTIMIZER_BYTES = {"adamw": 8.0, "adamw_8bit": 2.0, "lion": 4.0, "sgd_momentum": 4.0, "sgd": 0.0, "adafactor": 0.0}

GIB = 2**30


@dataclass(frozen=True)
class MemoryPlan:
    """How a model is trained, as far as memory goes.

    Args:
        batch_size: rows a device and forward pass, >= 1.
        length: tokens a row, padding included, >= 1.
        target_length: tokens a row of a decoder beside an encoder, >= 1; as many as ``length`` by default.
        compute_bytes: bytes of an activation, 2 for bf16 and fp16, 4 for fp32.
        weight_bytes: bytes of a stored weight and of its gradient; the Trainer keeps float32 unless the model is loaded
            in 16 bits.
        master_weights: whether a float32 copy is kept beside 16-bit weights (DeepSpeed's bf16 and fp16 engines); not
            with ``weight_bytes=4``.
        optimizer: one of ``OPTIMIZER_BYTES``.
        sharding: ``none`` (DDP), a ZeRO stage, or FSDP's counterpart.
        devices: devices that shards are spread over, >= 1.
        gradient_checkpointing: whether only the input of each block is kept.
        fused_attention: whether attention keeps no matrix of length times length (SDPA, flash).

    Raises:
        ValueError: an unknown name, a number below 1, or a float32 copy of float32 weights.
    """

    batch_size: int = 1
    length: int = 512
    compute_bytes: int = 2
    weight_bytes: int = 4
    master_weights: bool = False
    optimizer: str = "adamw"
    sharding: Sharding = "none"
    devices: int = 1
    gradient_checkpointing: bool = False
    fused_attention: bool = True
    target_length: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "length", "target_length", "devices"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}; allowed are integers >= 1.")
        if self.weight_bytes not in (2, 4):
            raise ValueError(f"weight_bytes={self.weight_bytes}; allowed: 4, or 2 for a model loaded in 16 bits.")
        for name, allowed in (("optimizer", OPTIMIZER_BYTES), ("sharding", _STAGE)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}; allowed: {', '.join(allowed)}.")
        if self.master_weights and self.weight_bytes == 4:
            raise ValueError(
                "master_weights=True with weight_bytes=4; weights of 4 bytes have no float32 copy. Set weight_bytes=2 "
                "(--weight-bytes 2), or leave master_weights out."
            )


@dataclass(frozen=True)
class Memory:
    """Bytes on one device, by what they hold; the framework's own gigabyte and fragmentation are not in it.

    Args:
        weights: stored weights.
        gradients: their gradients.
        optimizer: optimizer states, and float32 copies of 16-bit weights.
        casts: 16-bit copies of float32 weights that autocast keeps during a step.
        gathered: whole blocks that are put together while they are used (stage 3), or all of them (``fsdp_grad_op``).
        activations: what the backward pass needs of the blocks; None when the model's widths are not known.
        logits: output over the vocabulary, its float32 copy, log-probabilities and gradient; None likewise.
    """

    weights: float
    gradients: float
    optimizer: float
    casts: float
    gathered: float
    activations: float | None
    logits: float | None

    @property
    def states(self) -> float:
        """Bytes that do not depend on the batch."""
        return self.weights + self.gradients + self.optimizer + self.casts + self.gathered

    @property
    def total(self) -> float | None:
        """All bytes, None while activations are not known."""
        if self.activations is None or self.logits is None:
            return None
        return self.states + self.activations + self.logits


def training_memory(shape: ModelShape, plan: MemoryPlan) -> Memory:
    """Return the memory of one device.

    Args:
        shape: the model.
        plan: how it is trained.

    Example:
        >>> memory = training_memory(ModelShape.of_count(7e9), MemoryPlan(weight_bytes=2, master_weights=True))
        >>> [round(part / 7e9) for part in (memory.weights, memory.gradients, memory.optimizer)], memory.total
        ([2, 2, 12], None)
    """
    stage = _STAGE[plan.sharding]
    shards = [plan.devices if stage >= needed else 1 for needed in (1, 2, 3)]
    if plan.sharding == "fsdp_grad_op":
        shards[2] = plan.devices
    trained = shape.trainable_parameters
    optimizer = trained * (OPTIMIZER_BYTES[plan.optimizer] + (4 if plan.master_weights else 0))
    return Memory(
        weights=shape.parameters * plan.weight_bytes / shards[2],
        gradients=trained * plan.weight_bytes / shards[1],
        optimizer=optimizer / shards[0],
        casts=_casts(shape, plan, stage),
        gathered=_gathered(shape, plan, stage),
        activations=None if shape.sizes is None else _activations(shape.sizes, plan),
        logits=None if shape.sizes is None else _logits(shape.sizes, plan),
    )


def _casts(shape: ModelShape, plan: MemoryPlan, stage: int) -> float:
    if plan.compute_bytes >= plan.weight_bytes or stage == 3 or plan.sharding == "fsdp_grad_op":
        return 0.0
    return plan.compute_bytes * sum(product.weights for product in shape.products)


def _gathered(shape: ModelShape, plan: MemoryPlan, stage: int) -> float:
    """Two blocks at a time, the one that is computed and the one that is fetched; ``fsdp_grad_op`` keeps all."""
    if plan.sharding == "fsdp_grad_op":
        return shape.parameters * min(plan.compute_bytes, plan.weight_bytes)
    if stage < 3 or shape.sizes is None:
        return 0.0
    in_blocks = sum(product.weights for product in shape.products if product.in_block)
    return 2 * in_blocks / shape.sizes.layers * min(plan.compute_bytes, plan.weight_bytes)


def _activations(sizes: Sizes, plan: MemoryPlan) -> float:
    """Bytes of all blocks: those that see a row's input tokens, and a decoder's, which see its target tokens."""
    targets = plan.target_length or plan.length
    layers = (sizes.layers - sizes.target_layers, sizes.target_layers)
    blocks = (plan.length * block_bytes(sizes, plan), _target_block(sizes, plan, targets))
    if plan.gradient_checkpointing:
        inputs = (layers[0] * plan.length + layers[1] * targets) * sizes.hidden * plan.weight_bytes
        return plan.batch_size * (inputs + max(one for one, number in zip(blocks, layers, strict=True) if number))
    return plan.batch_size * (layers[0] * blocks[0] + layers[1] * blocks[1])


def _target_block(sizes: Sizes, plan: MemoryPlan, targets: int) -> float:
    """Bytes of a row in a block that looks at the encoder too: queries of the targets, keys and values of the input."""
    own = targets * block_bytes(sizes, replace(plan, length=targets))
    element, hidden = plan.compute_bytes, sizes.hidden
    query = 4 * hidden * (2 if sizes.root_mean_square else 1) + element * (hidden + 2 * sizes.attention)
    looks = 4 * sizes.heads
    if not plan.fused_attention:
        looks += sizes.heads * plan.length * (4 + (element if element < 4 else 0))
    return own + targets * (query + looks) + plan.length * element * 2 * sizes.key_value


def block_bytes(sizes: Sizes, plan: MemoryPlan) -> float:
    """Return the bytes that one block keeps for the backward pass, a token.

    Args:
        sizes: widths of the model.
        plan: precision, length and kind of attention count here.

    Returns:
        Bytes a token and block.
    """
    element, hidden = plan.compute_bytes, sizes.hidden
    # norms compute in float32: layer norm keeps its input, the root-mean-square norm its normalised input too
    norms = 2 * 4 * hidden * (2 if sizes.root_mean_square else 1)
    inputs = 2 * element * hidden
    attention = element * (2 * sizes.attention + 2 * sizes.key_value) + 4 * sizes.heads
    if not plan.fused_attention:
        # the probabilities in float32, and cast; under dropout the mask and what is left of them
        attention += sizes.heads * plan.length * (4 + (element if element < 4 else 0))
        attention += sizes.heads * plan.length * (element + 1) if sizes.dropout else 0
    feed_forward = element * sizes.feed_forward * sizes.activation_copies
    routed = element * 2 * hidden * sizes.experts_used
    dropout = 2 * hidden if sizes.dropout else 0
    return norms + inputs + attention + feed_forward + routed + dropout


def _logits(sizes: Sizes, plan: MemoryPlan) -> float:
    """Logits, their float32 copy where they are not, log-probabilities, and a gradient."""
    upcast = 4 if plan.compute_bytes < 4 else 0
    tokens = (plan.target_length or plan.length) if sizes.target_layers else plan.length
    return plan.batch_size * tokens * sizes.vocabulary * (plan.compute_bytes + upcast + 4 + 4)
