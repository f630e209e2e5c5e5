"""What torch knows about this process's devices, asked without creating a context that training would not make."""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainingArguments

from hf_trainplus.monitor.device_timer import DeviceTimer
from hf_trainplus.monitor.peaks import peak_dense_flops


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
    return peak_dense_flops(torch.cuda.get_device_name(args.device))
