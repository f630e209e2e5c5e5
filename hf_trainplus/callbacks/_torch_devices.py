"""What torch knows about this process's devices, asked without creating a context that training would not make."""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainingArguments

from hf_trainplus.budget.costs.device_table import Precision, find_device
from hf_trainplus.monitor.device_timer import DeviceTimer


def torch_cuda_uuids() -> list[str] | None:
    """Return the UUIDs of cuda:0, cuda:1, ...; None without CUDA or with a torch that does not tell them."""
    if not torch.cuda.is_available():
        return None
    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    uuids = [getattr(one, "uuid", None) for one in properties]
    return None if any(uuid is None for uuid in uuids) else [str(uuid) for uuid in uuids]


def torch_mps() -> Any | None:
    """Return ``torch.mps`` where Metal is available."""
    return torch.mps if torch.backends.mps.is_available() else None


def cuda_timer(args: TrainingArguments) -> DeviceTimer | None:
    """Return a timer of CUDA's own time when training runs there."""
    if args.device.type != "cuda":
        return None

    def make_event() -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call, unused-ignore]

    return DeviceTimer(make_event)


def peak_flops_of(args: TrainingArguments) -> float | None:
    """Look up the peak of the training device; None unless it is known and the run is in 16 bits."""
    if args.device.type != "cuda" or not (args.bf16 or args.fp16):
        return None
    return peak_flops_of_name(torch.cuda.get_device_name(args.device), "bf16" if args.bf16 else "fp16")


def peak_flops_of_name(name: str, precision: Precision) -> float | None:
    """Return a device's dense peak in FLOP/s by the driver's name; None where it is not known, never a guess.

    Args:
        name: e.g. ``NVIDIA H100 80GB HBM3``.
        precision: what is multiplied in.

    Example:
        >>> peak_flops_of_name("NVIDIA H100 80GB HBM3", "bf16"), peak_flops_of_name("NVIDIA A10G", "bf16")
        (989500000000000.0, None)
    """
    try:
        return find_device(name).peak_tflops(precision) * 1e12
    except ValueError:
        return None
