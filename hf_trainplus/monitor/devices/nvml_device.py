"""One NVIDIA device, whole or a MIG slice, read through NVML."""

from __future__ import annotations

from functools import partial
from typing import Any

from hf_trainplus.monitor.devices import nvml_values as values
from hf_trainplus.monitor.devices.guard import ValueGuard
from hf_trainplus.monitor.devices.reading import DeviceInfo, DeviceReading

_WHOLE: dict[str, values.Query] = {
    "utilization_percent": values.utilization_percent,
    "power_watts": values.power_watts,
    "power_limit_watts": values.power_limit_watts,
    "energy_joules": values.energy_joules,
    "nvlink_tx_bytes": values.nvlink_tx_bytes,
    "nvlink_rx_bytes": values.nvlink_rx_bytes,
}
_MEMORY: dict[str, values.Query] = {
    "memory_used_bytes": values.memory_used_bytes,
    "memory_total_bytes": values.memory_total_bytes,
}
_CHIP: dict[str, values.Query] = {
    "temperature_celsius": values.temperature_celsius,
    "sm_clock_mhz": values.sm_clock_mhz,
    "memory_clock_mhz": values.memory_clock_mhz,
    "ecc_uncorrected_errors": values.ecc_uncorrected_errors,
}
# each of these blocks for 20 ms inside the driver
_SLOW: dict[str, values.Query] = {
    "pcie_tx_bytes_per_second": values.pcie_tx_bytes_per_second,
    "pcie_rx_bytes_per_second": values.pcie_rx_bytes_per_second,
}


class NvmlDevice:
    """A device read through NVML; ``read`` never raises.

    A MIG slice has its own memory and processes. NVML measures no use, power or energy for a slice, so these are
    missing there (the whole card's would be wrong); temperature, clocks and throttling are the chip's and are given.

    Args:
        info: the logical index and the identifier.
        nvml: the module ``pynvml``.
        handle: NVML's handle of the device or slice.
        chip: NVML's handle of the whole GPU; equal to ``handle`` unless it is a slice.
        guard: stands around each value.
        pid: process whose own memory is asked for.
        slow_every: PCIe traffic is asked for in one reading of so many, since each answer takes 20 ms, >= 1.
    """

    def __init__(
        self,
        info: DeviceInfo,
        *,
        nvml: Any,
        handle: Any,
        chip: Any,
        guard: ValueGuard,
        pid: int,
        slow_every: int = 10,
    ) -> None:
        self.info = info
        self._nvml = nvml
        self._handle = handle
        self._chip = chip
        self._guard = guard
        self._pid = pid
        self._slow_every = slow_every
        self._reads = 0

    def read(self) -> DeviceReading:
        """Ask for every value that has not been given up."""
        found: dict[str, Any] = {}
        self._ask(_MEMORY, self._handle, found)
        self._ask(_CHIP, self._chip, found)
        if self.info.kind != "mig":
            self._ask(_WHOLE, self._handle, found)
            if self._reads % self._slow_every == 0:
                self._ask(_SLOW, self._handle, found)
        found["throttle_reasons"] = self._guard.ask(
            "throttle_reasons", lambda: values.throttle_reasons(self._nvml, self._chip)
        )
        found["process_memory_bytes"] = self._guard.ask(
            "process_memory_bytes", lambda: values.process_memory_bytes(self._nvml, self._handle, self._pid)
        )
        self._reads += 1
        return DeviceReading(**found)

    def _ask(self, queries: dict[str, values.Query], handle: Any, found: dict[str, Any]) -> None:
        for name, query in queries.items():
            found[name] = self._guard.ask(name, partial(query, self._nvml, handle))
