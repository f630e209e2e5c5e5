"""What is read from one device at one moment: plain frozen values, missing ones None."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, Protocol

GIB = 1024.0**3

DeviceKind = Literal["cuda", "mig", "rocm", "mps"]
UseStatus = Literal["measured", "not measurable", "unknown"]


@dataclass(frozen=True)
class DeviceInfo:
    """What stays the same about a device during a run.

    It holds no reading, and ``uuid`` is never derived from a position.

    Args:
        index: the logical (CUDA) index, as in ``cuda:0``, >= 0.
        name: the marketing name, or None when it cannot be read.
        uuid: the vendor's identifier (``GPU-...``, ``MIG-...``), or None where there is none (MPS).
        kind: ``cuda``, ``mig`` (a slice of a CUDA device), ``rocm`` or ``mps``.
        matched_by: the fact that ties the logical index to this device, e.g. ``torch uuid``.

    Example:
        >>> DeviceInfo(0, "H200", "GPU-1", "cuda", "torch uuid").matched_by
        'torch uuid'
    """

    index: int
    name: str | None
    uuid: str | None
    kind: DeviceKind
    matched_by: str


@dataclass(frozen=True)
class DeviceReading:
    """One look at one device; None where a value is missing, never 0 in its place.

    Counters (``energy_joules``, ``nvlink_*_bytes``, ``ecc_uncorrected_errors``) count since the driver was loaded:
    take differences. It judges nothing: whether a use of 0 is believable is for ``UseTrust``.

    Args:
        utilization_percent: share of the driver's last averaging window with a kernel running, 0 to 100.
        memory_used_bytes: memory in use on the device by everybody.
        memory_total_bytes: the device's memory.
        process_memory_bytes: memory of the watched process alone.
        power_watts: power drawn now.
        power_limit_watts: the limit that the driver enforces.
        temperature_celsius: of the chip.
        sm_clock_mhz: of the multiprocessors.
        memory_clock_mhz: of the memory.
        throttle_reasons: why the clock is held down, () when it is not.
        pcie_tx_bytes_per_second: device to host.
        pcie_rx_bytes_per_second: host to device.
        nvlink_tx_bytes: sent over all links, a counter.
        nvlink_rx_bytes: received over all links, a counter.
        energy_joules: a counter.
        ecc_uncorrected_errors: volatile uncorrected memory errors, a counter.

    Example:
        >>> DeviceReading(utilization_percent=40.0, memory_used_bytes=2.0 * 1024**3).numbers()
        {'utilization_percent': 40.0, 'memory_used_gib': 2.0}
    """

    utilization_percent: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    process_memory_bytes: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    pcie_tx_bytes_per_second: float | None = None
    pcie_rx_bytes_per_second: float | None = None
    nvlink_tx_bytes: float | None = None
    nvlink_rx_bytes: float | None = None
    energy_joules: float | None = None
    ecc_uncorrected_errors: float | None = None

    def numbers(self) -> dict[str, float]:
        """Return what is present, name -> number; what is no finite number is missing.

        Bytes become ``*_gib``; throttle reasons become ``throttled_percent``, ``power_throttled_percent`` and
        ``thermal_throttled_percent``, each 0 or 100.
        """
        found: dict[str, float] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or (isinstance(value, float) and not math.isfinite(value)):
                continue
            if field.name == "throttle_reasons":
                found |= _throttling(value)
            elif field.name.endswith("_bytes"):
                found[field.name.removesuffix("_bytes") + "_gib"] = value / GIB
            else:
                found[field.name] = float(value)
        return found


def _throttling(reasons: tuple[str, ...]) -> dict[str, float]:
    kinds = {"throttled": "", "power_throttled": "power", "thermal_throttled": "thermal"}
    return {
        f"{name}_percent": 100.0 if any(reason.startswith(start) for reason in reasons) else 0.0
        for name, start in kinds.items()
    }


class Device(Protocol):
    """A device that can be read; ``read`` never raises."""

    @property
    def info(self) -> DeviceInfo:
        """What stays the same."""

    def read(self) -> DeviceReading:
        """Look once."""


class DeviceSource(Protocol):
    """The devices of one vendor's library, and what that library had to say."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """The visible devices in logical order."""

    def drain_notices(self) -> list[str]:
        """Return the warnings not yet reported; the sampler's thread never logs them itself."""

    def close(self) -> None:
        """Let go of the library."""
