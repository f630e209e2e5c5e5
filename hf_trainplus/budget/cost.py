"""What a run will cost before it runs: operations, hours, memory, energy and money."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hf_trainplus.budget.costs.device_table import Precision
from hf_trainplus.budget.costs.flops import AttentionKernel, Flops, Tokens, forward_flops, training_flops
from hf_trainplus.budget.costs.hardware import Hardware
from hf_trainplus.budget.costs.memory import Memory, MemoryPlan, Sharding, training_memory
from hf_trainplus.budget.costs.model_reading import read_model
from hf_trainplus.budget.costs.model_shape import ModelShape

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class CostEstimate:
    """What a run will cost, by formulas; see ``BudgetCallback.time_left`` for what it costs as measured.

    Args:
        shape: the model.
        hardware: what it runs on.
        training: operations of training.
        evaluation: operations of one evaluation, None when it was not asked for.
        evaluations: how often it is evaluated.
        memory: bytes on one device, None when the length of a row is not known.
        fits: whether they fit into one device of the table; None when either is not known.
        notes: what the formulas leave out here.
    """

    shape: ModelShape
    hardware: Hardware
    training: Flops
    evaluation: Flops | None
    evaluations: int
    memory: Memory | None
    fits: bool | None
    notes: tuple[str, ...]

    @property
    def training_flops(self) -> float:
        """Operations of training."""
        return self.training.total

    @property
    def evaluation_flops(self) -> float | None:
        """Operations of one evaluation."""
        return self.evaluation.total if self.evaluation else None

    @property
    def training_to_evaluation(self) -> float | None:
        """How many times one evaluation the training costs."""
        return self.training_flops / self.evaluation.total if self.evaluation else None

    @property
    def training_gpu_hours(self) -> float:
        """Device-hours of training."""
        return self.hardware.device_hours(self.training_flops)

    @property
    def evaluation_gpu_hours(self) -> float | None:
        """Device-hours of one evaluation."""
        return self.hardware.device_hours(self.evaluation.total) if self.evaluation else None

    @property
    def gpu_hours(self) -> float:
        """Device-hours of training and all evaluations."""
        return self.training_gpu_hours + self.evaluations * (self.evaluation_gpu_hours or 0.0)

    @property
    def wall_clock_seconds(self) -> float:
        """Seconds of training and all evaluations on all devices."""
        return self.gpu_hours * 3600 / self.hardware.devices

    @property
    def energy_kwh(self) -> float | None:
        """Energy in kilowatt-hours, None when the power of the device is not known."""
        return self.hardware.energy_kwh(self.gpu_hours)

    @property
    def usd(self) -> float | None:
        """Price in dollars, None without a price."""
        return self.hardware.usd(self.gpu_hours)


def estimate_cost(
    model: nn.Module | PretrainedConfig | ModelShape | str | float,
    *,
    tokens: float,
    sequence_length: int | None = None,
    target_tokens: float | None = None,
    target_length: int | None = None,
    evaluation_tokens: float | None = None,
    evaluations: int = 1,
    device: str | None = None,
    peak_tflops: float | None = None,
    precision: Precision = "bf16",
    devices: int = 1,
    utilisation: float = 0.4,
    scaling_efficiency: float = 1.0,
    usd_per_device_hour: float | None = None,
    watts_per_device: float | None = None,
    batch_size: int = 1,
    gradient_checkpointing: bool = False,
    attention_kernel: AttentionKernel = "dense",
    fused_attention: bool = True,
    optimizer: str = "adamw",
    sharding: Sharding = "none",
    weight_bytes: int | None = None,
    master_weights: bool | None = None,
) -> CostEstimate:
    """Estimate what training and evaluating a model costs, before anything runs and without its weights.

    It counts matrix products; norms, data loading, communication and saving are what ``utilisation`` and
    ``scaling_efficiency`` stand for. It knows no generation. Sources of the formulas: see ``budget.flops``,
    ``budget.memory`` and ``budget.device_table``.

    Args:
        model: a model (frozen and adapter weights are told apart), a configuration, a name on the Hub or on disk, or a
            number of parameters.
        tokens: tokens trained on in all, repeated epochs included.
        sequence_length: tokens a row, padding included; needed for a model with attention.
        target_tokens: tokens of the decoder's side of an encoder-decoder; as many as ``tokens`` by default.
        target_length: their number a row; ``sequence_length`` by default.
        evaluation_tokens: tokens of one evaluation; None leaves evaluation out.
        evaluations: number of evaluations, >= 0; more than one needs ``evaluation_tokens``.
        device: a device of the table, e.g. ``"h100-sxm"``.
        peak_tflops: dense peak of one device in TFLOP/s, for a device that is not in the table.
        precision: ``"bf16"``, ``"fp16"`` or ``"fp32"``.
        devices: number of devices.
        utilisation: share of the peak that a device reaches, 0 to 1.
        scaling_efficiency: throughput of n devices over n times that of one, 0 to 1.
        usd_per_device_hour: price in dollars; None leaves money out.
        watts_per_device: power of a device in watts; the board's largest by default.
        batch_size: rows a device and forward pass, for activation memory.
        gradient_checkpointing: whether blocks are computed twice and their activations not kept.
        attention_kernel: ``"dense"``, or ``"skipping"`` for kernels that leave out what a causal mask hides.
        fused_attention: whether attention keeps no matrix of length times length.
        optimizer: ``adamw``, ``adamw_8bit``, ``adafactor``, ``lion``, ``sgd_momentum`` or ``sgd``.
        sharding: ``none``, ``zero1``, ``zero2``, ``zero3``, ``fsdp_grad_op`` or ``fsdp_full``.
        weight_bytes: bytes of a stored weight: 4, or 2 for a model loaded in 16 bits; by default 2 under ``zero1``,
            ``zero2`` and ``zero3`` in 16 bits, as DeepSpeed casts it, else 4.
        master_weights: whether a float32 copy is kept beside 16-bit weights; by default where DeepSpeed does.

    Returns:
        The estimate.

    Raises:
        ValueError: an unknown device without ``peak_tflops``, a number out of range, a missing length.
        TypeError: a model of another kind.

    Example:
        >>> cost = estimate_cost(175e9, tokens=300e9, evaluation_tokens=1e6, peak_tflops=312, utilisation=0.4)
        >>> f"{cost.training_flops:.3g} {cost.training_gpu_hours:.2g} {cost.evaluation_flops:.2g}"
        '3.15e+23 7e+05 3.5e+17'
        >>> f"{cost.evaluation_gpu_hours:.2f} {cost.training_to_evaluation:.2g}"
        '0.78 9e+05'
    """
    hardware = Hardware(
        device, peak_tflops, precision, devices, utilisation, scaling_efficiency, usd_per_device_hour, watts_per_device
    )
    _check_evaluations(evaluations, evaluation_tokens)
    engine = sharding.startswith("zero") and precision != "fp32"
    weight_bytes = (2 if engine else 4) if weight_bytes is None else weight_bytes
    master_weights = engine and weight_bytes == 2 if master_weights is None else master_weights
    shape = read_model(model)
    trained_on = _tokens(shape, tokens, sequence_length, target_tokens, target_length, attention_kernel)
    memory = _memory(
        shape,
        length=sequence_length,
        target_length=target_length,
        batch_size=batch_size,
        compute_bytes=4 if precision == "fp32" else 2,
        weight_bytes=weight_bytes,
        master_weights=master_weights,
        optimizer=optimizer,
        sharding=sharding,
        devices=devices,
        gradient_checkpointing=gradient_checkpointing,
        fused_attention=fused_attention,
    )
    evaluation = None
    if evaluation_tokens is not None:
        evaluated = _tokens(shape, evaluation_tokens, sequence_length, None, target_length, attention_kernel)
        evaluation = forward_flops(shape, evaluated)
    return CostEstimate(
        shape=shape,
        hardware=hardware,
        training=training_flops(shape, trained_on, gradient_checkpointing=gradient_checkpointing),
        evaluation=evaluation,
        evaluations=evaluations if evaluation else 0,
        memory=memory,
        fits=_fits(memory, hardware),
        notes=shape.notes,
    )


def _check_evaluations(evaluations: int, tokens: float | None) -> None:
    if evaluations < 0:
        raise ValueError(f"evaluations={evaluations}; allowed are integers >= 0.")
    if evaluations > 1 and tokens is None:
        raise ValueError(
            f"evaluations={evaluations} without their tokens. Set evaluation_tokens=1e6 (--eval-tokens), or leave "
            "evaluations out."
        )


def _tokens(
    shape: ModelShape,
    tokens: float,
    length: int | None,
    target_tokens: float | None,
    target_length: int | None,
    kernel: AttentionKernel,
) -> Tokens:
    if length is not None and length < 1:
        raise ValueError(f"sequence_length={length}; allowed are integers >= 1, e.g. --sequence-length 512.")
    if shape.attention and length is None:
        raise ValueError(
            f"{shape.name} has attention, whose cost grows with the length of a row. Set sequence_length=512 "
            "(--sequence-length)."
        )
    if not shape.has_target_side and (target_tokens is not None or target_length is not None):
        raise ValueError(f"{shape.name} has no decoder of its own; leave out target_tokens and target_length.")
    return Tokens(tokens, length, target_tokens, target_length, kernel)


def _memory(shape: ModelShape, *, length: int | None, target_length: int | None, **plan: Any) -> Memory | None:
    """Memory of one device. None when no length is known."""
    if length is None and shape.sizes is not None:
        return None
    return training_memory(shape, MemoryPlan(length=length or 1, target_length=target_length, **plan))


def _fits(memory: Memory | None, hardware: Hardware) -> bool | None:
    entry = hardware.table_entry()
    if memory is None or memory.total is None or entry is None:
        return None
    return memory.total <= entry.memory_gb * 1e9
