"""One small function a value: how NVML is asked, and the unit it answers in.

Every function takes the module ``pynvml`` (or a fake of it), so that nothing here needs a driver. They raise whatever
NVML raises; ``ValueGuard`` stands around each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# nvml.h: a scope of UINT_MAX sums a link counter over all links
_ALL_LINKS = 0xFFFFFFFF
_NVLINK_DATA_TX, _NVLINK_DATA_RX = 138, 139

# nvmlClocksEventReasons; GpuIdle (0x1) and the application clocks (0x2) are settings, not throttling
_THROTTLE_BITS = {
    0x0004: "power cap",
    0x0008: "hardware slowdown",
    0x0010: "sync boost",
    0x0020: "thermal (software)",
    0x0040: "thermal (hardware)",
    0x0080: "power brake",
}

Query = Callable[[Any, Any], float]


def mismatch_errors(nvml: Any) -> tuple[type[Exception], ...]:
    """Return what says that the driver is too old for a function; pynvml's own class for it is no ``NVMLError``."""
    mismatch = getattr(nvml, "NVMLLibraryMismatchError", None)
    return (nvml.NVMLError_FunctionNotFound, *([] if mismatch is None else [mismatch]))


def percent_in_range(value: float) -> float:
    """Return a percentage.

    Raises:
        ValueError: outside 0 to 100, as some virtual devices answer.
    """
    if not 0 <= value <= 100:
        raise ValueError(f"the driver answered {value} for a percentage")
    return float(value)


def utilization_percent(nvml: Any, handle: Any) -> float:
    """Share of the driver's averaging window with a kernel running."""
    return percent_in_range(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)


def memory_used_bytes(nvml: Any, handle: Any) -> float:
    """Memory in use by everybody, the driver's own reserve included (as ``nvidia-smi`` of old drivers shows it)."""
    return float(nvml.nvmlDeviceGetMemoryInfo(handle).used)


def memory_total_bytes(nvml: Any, handle: Any) -> float:
    """The device's memory."""
    return float(nvml.nvmlDeviceGetMemoryInfo(handle).total)


def process_memory_bytes(nvml: Any, handle: Any, pid: int) -> float | None:
    """Memory of one process; None where the driver does not list it (other PID namespace, WSL)."""
    listed = [entry.usedGpuMemory for entry in _processes(nvml, handle) if entry.pid == pid]
    known = [float(used) for used in listed if used is not None]
    return sum(known) if known else None


def _processes(nvml: Any, handle: Any) -> Any:
    try:
        return nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except mismatch_errors(nvml):
        # a driver before 510 has the second version only
        return nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)


def power_watts(nvml: Any, handle: Any) -> float:
    """Power drawn now; NVML answers in milliwatts."""
    return float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1e3


def power_limit_watts(nvml: Any, handle: Any) -> float:
    """The limit enforced now; NVML answers in milliwatts."""
    return float(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)) / 1e3


def temperature_celsius(nvml: Any, handle: Any) -> float:
    """Of the chip."""
    return float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))


def sm_clock_mhz(nvml: Any, handle: Any) -> float:
    """Of the multiprocessors."""
    return float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))


def memory_clock_mhz(nvml: Any, handle: Any) -> float:
    """Of the memory."""
    return float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))


def throttle_reasons(nvml: Any, handle: Any) -> tuple[str, ...]:
    """Why the clock is held down; the function was renamed with driver 535, so the older name is the second try."""
    ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    try:
        bits = ask(handle) if ask is not None else nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    except nvml.NVMLError_FunctionNotFound:
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return tuple(name for bit, name in _THROTTLE_BITS.items() if bits & bit)


def pcie_tx_bytes_per_second(nvml: Any, handle: Any) -> float:
    """Device to host over the last 20 ms; NVML answers in KiB/s and blocks for those 20 ms."""
    return float(nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES)) * 1024.0


def pcie_rx_bytes_per_second(nvml: Any, handle: Any) -> float:
    """Host to device, as ``pcie_tx_bytes_per_second``."""
    return float(nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES)) * 1024.0


def nvlink_tx_bytes(nvml: Any, handle: Any) -> float:
    """Sent over all links since the driver was loaded."""
    return _link_counter(nvml, handle, _NVLINK_DATA_TX)


def nvlink_rx_bytes(nvml: Any, handle: Any) -> float:
    """Received over all links since the driver was loaded."""
    return _link_counter(nvml, handle, _NVLINK_DATA_RX)


def energy_joules(nvml: Any, handle: Any) -> float:
    """Energy since the driver was loaded; NVML answers in millijoules, Volta and later."""
    return float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3


def ecc_uncorrected_errors(nvml: Any, handle: Any) -> float:
    """Uncorrected memory errors since the driver was loaded."""
    return float(
        nvml.nvmlDeviceGetTotalEccErrors(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    )


def _link_counter(nvml: Any, handle: Any, field_id: int) -> float:
    value = nvml.nvmlDeviceGetFieldValues(handle, [(field_id, _ALL_LINKS)])[0]
    if value.nvmlReturn != 0:
        raise nvml.NVMLError(value.nvmlReturn)
    return float(value.value.ullVal) * 1024.0
