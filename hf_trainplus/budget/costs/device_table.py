"""Peak rates, memory and power of known devices, each with its source. An unknown device is an error, never a guess."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Precision = Literal["bf16", "fp16", "fp32"]
PRECISIONS: tuple[Precision, ...] = ("bf16", "fp16", "fp32")

# Data sheets by their titles. Where NVIDIA prints a rate with 2:4 sparsity, half of it is the dense one.
_A100 = "NVIDIA A100 Tensor Core GPU datasheet (nvidia.com: nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf)"
_H100 = "NVIDIA H100 Tensor Core GPU datasheet (resources.nvidia.com: nvidia-tensor-core-gpu-datasheet); 16 bits halved"
_ADA = "NVIDIA L4 / L40 / L40S datasheets; 16 bits halved for L4"
_AMPERE = "NVIDIA A10 / A30 / A40 datasheets, dense figures"


@dataclass(frozen=True)
class Device:
    """One accelerator.

    Args:
        name: name in this table.
        bf16, fp16, fp32: peak dense matrix rate in TFLOP/s, fp32 accumulation, without TF32; None = not supported.
        memory_gb: memory in GB (1e9 bytes).
        bandwidth_gb_s: peak memory bandwidth in GB/s.
        board_watts: largest power of the board in watts.
        source: where the figures are printed.
    """

    name: str
    bf16: float | None
    fp16: float | None
    fp32: float
    memory_gb: float
    bandwidth_gb_s: float
    board_watts: float
    source: str

    def peak_tflops(self, precision: Precision) -> float:
        """Return the peak rate in TFLOP/s.

        Raises:
            ValueError: the device has no such unit.
        """
        peak: float | None = getattr(self, precision)
        if peak is None:
            raise ValueError(f"{self.name} has no {precision} matrix unit. Set precision='fp16' or give peak_tflops.")
        return peak


DEVICES = {
    device.name: device
    for device in (
        Device("a100-sxm-40gb", 312, 312, 19.5, 40, 1555, 400, _A100),
        Device("a100-sxm-80gb", 312, 312, 19.5, 80, 2039, 400, _A100),
        Device("a100-pcie-40gb", 312, 312, 19.5, 40, 1555, 250, _A100),
        Device("a100-pcie-80gb", 312, 312, 19.5, 80, 1935, 300, _A100),
        Device("h100-sxm", 989.5, 989.5, 67, 80, 3350, 700, _H100),
        Device("h100-pcie", 756.5, 756.5, 51, 80, 2000, 350, _H100),
        Device("h100-nvl", 835.5, 835.5, 60, 94, 3900, 400, _H100),
        Device("h200-sxm", 989.5, 989.5, 67, 141, 4800, 700, "NVIDIA H200 datasheet, as H100"),
        Device("gh200-480gb", 989.5, 989.5, 67, 96, 4000, 1000, "NVIDIA GH200 Superchip datasheet; 16 bits halved"),
        Device("b200-sxm", 2250, 2250, 75, 180, 7700, 1000, "NVIDIA HGX B200 datasheet, an eighth of the board"),
        Device("l4", 121, 121, 30.3, 24, 300, 72, _ADA),
        Device("l40", 181.05, 181.05, 90.5, 48, 864, 300, _ADA),
        Device("l40s", 362.05, 362.05, 91.6, 48, 864, 350, _ADA),
        Device("a10", 125, 125, 31.2, 24, 600, 150, _AMPERE),
        Device("a30", 165, 165, 10.3, 24, 933, 165, _AMPERE),
        Device("a40", 149.7, 149.7, 37.4, 48, 696, 300, _AMPERE),
        Device("v100-sxm-16gb", None, 125, 15.7, 16, 900, 300, "NVIDIA V100 datasheet"),
        Device("v100-sxm-32gb", None, 125, 15.7, 32, 900, 300, "NVIDIA V100 datasheet"),
        Device("v100-pcie-16gb", None, 112, 14, 16, 900, 250, "NVIDIA V100 datasheet"),
        Device("v100-pcie-32gb", None, 112, 14, 32, 900, 250, "NVIDIA V100 datasheet"),
        Device("t4", None, 65, 8.1, 16, 320, 70, "NVIDIA T4 datasheet"),
        Device("rtx-3090", 71, 71, 35.6, 24, 936, 350, "NVIDIA Ampere GA102 architecture whitepaper, appendix A"),
        Device("rtx-4090", 165.2, 165.2, 82.6, 24, 1008, 450, "NVIDIA Ada GPU architecture whitepaper, appendix A"),
        Device("mi300x", 1307.4, 1307.4, 163.4, 192, 5300, 750, "AMD Instinct MI300X data sheet"),
    )
}


def find_device(name: str) -> Device:
    """Find a device by its name in the table or by what the driver calls it.

    Args:
        name: e.g. ``"h100-sxm"`` or ``"NVIDIA H100 80GB HBM3"``.

    Raises:
        ValueError: an unknown device, or a name that several devices share.

    Example:
        >>> find_device("NVIDIA A100-SXM4-80GB").name, find_device("h100-sxm").bf16
        ('a100-sxm-80gb', 989.5)
    """
    words = _words(name)
    if device := DEVICES.get("-".join(words)):
        return device
    given = set(words) - _SAY_NOTHING
    # the rest of a name counts: an "RTX 3090 Ti" is no "RTX 3090", and a MIG slice no whole device
    found = [
        device for device in DEVICES.values() if given <= set(_words(device.name)) and _words(device.name)[0] in given
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"device {name!r} is one of {', '.join(device.name for device in found)}; say which.")
    raise ValueError(
        f"device {name!r} is not in the table, and its speed is not guessed. Known: {', '.join(DEVICES)}. "
        "Give the dense peak from its data sheet: --peak-tflops 123 (peak_tflops=123)."
    )


_SAY_NOTHING = frozenset({"nvidia", "geforce", "tesla", "amd", "instinct", "gpu", "tensor", "core"})


def _words(name: str) -> list[str]:
    """Split a driver's name into the words of the table: H100's SXM board is called after its memory, HBM3."""
    text = name.lower().replace("sxm2", "sxm").replace("sxm3", "sxm").replace("sxm4", "sxm").replace("sxm5", "sxm")
    words = [word for word in re.split(r"[^a-z0-9]+", text) if word]
    if "h100" in words:
        words = ["sxm" if word == "hbm3" else word for word in words if word != "80gb"]
    return words
