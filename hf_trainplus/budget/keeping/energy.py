"""Energy drawn by the devices of this process: NVML's counter, or integrated power where there is none."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

logger = logging.getLogger(__name__)

Joules = Callable[[], float | None]


class PowerIntegral:
    """Energy as the integral of power between calls, by the trapezoid rule; for devices without an energy counter.

    It sees power only when it is called: call it every step. A reading that fails leaves the gap to the next one.

    Args:
        watts: present power in watts, None when it cannot be read.
        clock: seconds from a fixed point.

    Example:
        >>> seconds, watts = iter([0.0, 10.0]), iter([100.0, 300.0])
        >>> joules = PowerIntegral(lambda: next(watts), clock=lambda: next(seconds))
        >>> joules(), joules()
        (0.0, 2000.0)
    """

    def __init__(self, watts: Callable[[], float | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._watts = watts
        self._clock = clock
        self._joules = 0.0
        self._last: tuple[float, float] | None = None

    def __call__(self) -> float | None:
        """Return the joules since the first call, None while power could never be read."""
        watts = self._watts()
        if watts is not None:
            now = self._clock()
            if self._last is not None:
                before, watts_before = self._last
                self._joules += (now - before) * (watts + watts_before) / 2
            self._last = (now, watts)
        return None if self._last is None else self._joules


def nvml_joules(
    uuids: Sequence[str], nvml: Any | None = None, clock: Callable[[], float] = time.monotonic
) -> Joules | None:
    """Return a function that reads the energy of some GPUs, None when NVML cannot measure all of them.

    It starts no thread. Which GPUs a process uses is for the caller to say: NVML's indices are not CUDA's.

    Args:
        uuids: UUIDs of the devices, with or without the prefix ``GPU-``.
        nvml: the module ``pynvml``, or a stand-in.
        clock: seconds from a fixed point, for integrated power.

    Returns:
        A function that returns joules from a fixed, unknown point; or None.
    """
    nvml = nvml or _pynvml()
    if not uuids or nvml is None:
        return None
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByUUID(_full(uuid)) for uuid in uuids]
        readers = [_reader(nvml, handle, clock) for handle in handles]
    except nvml.NVMLError as error:
        logger.info("Energy is not metered: NVML says %s.", error)
        return None
    return None if any(reader is None for reader in readers) else _total([reader for reader in readers if reader])


def _pynvml() -> Any | None:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


def _full(uuid: str) -> str:
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _reader(nvml: Any, handle: Any, clock: Callable[[], float]) -> Joules | None:
    def counter() -> float | None:
        return _value(nvml, nvml.nvmlDeviceGetTotalEnergyConsumption, handle)

    def watts() -> float | None:
        return _value(nvml, nvml.nvmlDeviceGetPowerUsage, handle)

    if counter() is not None:
        return counter
    return PowerIntegral(watts, clock) if watts() is not None else None


def _value(nvml: Any, read: Callable[[Any], float], handle: Any) -> float | None:
    """NVML counts in thousandths: millijoules and milliwatts."""
    try:
        return float(read(handle)) / 1000
    except nvml.NVMLError:
        return None


def _total(readers: Sequence[Joules]) -> Joules:
    def joules() -> float | None:
        values = [reader() for reader in readers]
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None

    return joules
