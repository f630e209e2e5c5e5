"""Peak rates of known devices, for model FLOPs utilisation."""

from __future__ import annotations

# Dense 16-bit matrix rate with 32-bit accumulation, in FLOP/s, from NVIDIA's and AMD's data sheets (the figure without
# sparsity). Longer names come first: "H100 PCIe" must not be read as "H100".
_DENSE_16_BIT = {
    "GB200": 2.5e15,
    "B200": 2.25e15,
    "GH200": 989e12,
    "H200 NVL": 835e12,
    "H200": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H800": 989e12,
    "A100": 312e12,
    "A800": 312e12,
    "A40": 149.7e12,
    "A30": 165e12,
    "A10": 125e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "V100 PCIE": 112e12,
    "V100": 125e12,
    "T4": 65e12,
    "MI300X": 1307e12,
}


def peak_dense_flops(name: str | None) -> float | None:
    """Look up a device's dense 16-bit peak.

    It knows neither the precision that is trained in nor clocks held down: for fp32, TF32 or fp8 give your own figure
    to ``StepClockCallback(peak_flops=...)``.

    Args:
        name: the driver's name, e.g. ``NVIDIA H100 80GB HBM3``.

    Returns:
        FLOP/s, or None for a device that is not in the table; it is never estimated.

    Example:
        >>> peak_dense_flops("NVIDIA H100 80GB HBM3"), peak_dense_flops("NVIDIA H100 PCIe"), peak_dense_flops("CPU")
        (989000000000000.0, 756000000000000.0, None)
    """
    if name is None:
        return None
    words = f" {name.replace('-', ' ')} ".lower()
    for known, peak in _DENSE_16_BIT.items():
        if f" {known.lower()} " in words:
            return peak
    return None
