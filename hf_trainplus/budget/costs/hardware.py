"""Hardware, utilisation, price and power: what turns operations into hours, energy and money. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hf_trainplus.budget.costs.device_table import PRECISIONS, Device, Precision, find_device


@dataclass(frozen=True)
class Hardware:
    """Devices that a run computes on.

    Args:
        device: name of a device of the table; its memory and power are used.
        peak_tflops: dense peak of one device in TFLOP/s; overrides the table's, and stands in for a device that is not
            in it.
        precision: what is multiplied in: ``bf16``, ``fp16`` or ``fp32``.
        devices: number of devices, >= 1.
        utilisation: share of the peak that one device reaches, above 0 and at most 1; well-tuned training of large
            models reaches 0.4 to 0.55, fine-tuning of small ones often 0.1 to 0.3.
        scaling_efficiency: throughput of n devices over n times that of one, above 0 and at most 1.
        usd_per_device_hour: price of one device for one hour in dollars.
        watts_per_device: power of one device; the table's board power by default, which is an upper bound.

    Raises:
        ValueError: neither a device nor a peak, an unknown device, or a number out of its range.

    Example:
        >>> Hardware("a100-sxm-80gb").device_hours(3.15e23)
        701121.7948717949
    """

    device: str | None = None
    peak_tflops: float | None = None
    precision: Precision = "bf16"
    devices: int = 1
    utilisation: float = 0.4
    scaling_efficiency: float = 1.0
    usd_per_device_hour: float | None = None
    watts_per_device: float | None = None

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision={self.precision!r}; allowed: {', '.join(PRECISIONS)}.")
        if self.devices < 1:
            raise ValueError(f"devices={self.devices}; allowed are integers >= 1.")
        for name in ("utilisation", "scaling_efficiency"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)}; allowed is a share above 0 and at most 1, e.g. 0.4.")
        for name in ("peak_tflops", "usd_per_device_hour", "watts_per_device"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}={value}; allowed are finite numbers above 0.")
        if self.scaling_efficiency < 1 and self.devices == 1:
            raise ValueError(
                f"scaling_efficiency={self.scaling_efficiency} with devices=1; one device scales by 1. Set devices, or "
                "lower utilisation."
            )
        if self.device is None and self.peak_tflops is None:
            raise ValueError(
                "no device is given. Set device='a100-sxm-80gb' (--device), or the dense peak of yours in TFLOP/s: "
                "peak_tflops=312 (--peak-tflops)."
            )
        if self.peak_tflops is None:
            self.known_device().peak_tflops(self.precision)

    def known_device(self) -> Device:
        """Return the device's entry in the table.

        Raises:
            ValueError: it has none.
        """
        return find_device(str(self.device))

    def table_entry(self) -> Device | None:
        """Return the device's entry, None without one: with a given peak the device may be any."""
        try:
            return self.known_device() if self.device is not None else None
        except ValueError:
            if self.peak_tflops is None:
                raise
            return None

    def flops_per_second(self) -> float:
        """Return what one of the devices computes in a second, in FLOP/s."""
        peak = self.peak_tflops if self.peak_tflops is not None else self.known_device().peak_tflops(self.precision)
        return peak * 1e12 * self.utilisation * self.scaling_efficiency

    def device_hours(self, flops: float) -> float:
        """Return the device-hours for a number of operations."""
        return flops / self.flops_per_second() / 3600

    def seconds(self, flops: float) -> float:
        """Return the wall-clock seconds on all devices."""
        return self.device_hours(flops) * 3600 / self.devices

    def energy_kwh(self, device_hours: float) -> float | None:
        """Return the energy of device-hours, None when the power is not known."""
        entry = self.table_entry()
        watts = self.watts_per_device or (entry.board_watts if entry else None)
        return None if watts is None else device_hours * watts / 1000

    def usd(self, device_hours: float) -> float | None:
        """Return the price of device-hours, None without one."""
        return None if self.usd_per_device_hour is None else device_hours * self.usd_per_device_hour
