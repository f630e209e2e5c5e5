"""The Apple GPU: Metal tells torch its memory, and nothing else."""

from __future__ import annotations

from typing import Any

from hf_trainplus.monitor.devices.reading import DeviceInfo, DeviceReading


class MpsDevice:
    """The one MPS device; it knows memory only, the rest is missing.

    Args:
        mps: the module ``torch.mps`` or a fake of it.

    Example:
        >>> from types import SimpleNamespace
        >>> fake = SimpleNamespace(driver_allocated_memory=lambda: 10, current_allocated_memory=lambda: 7)
        >>> reading = MpsDevice(fake).read()
        >>> reading.memory_used_bytes, reading.process_memory_bytes, reading.utilization_percent
        (10.0, 7.0, None)
    """

    def __init__(self, mps: Any) -> None:
        self.info = DeviceInfo(0, "Apple GPU", None, "mps", "only device")
        self._mps = mps

    def read(self) -> DeviceReading:
        """Ask Metal for this process's memory."""
        return DeviceReading(
            # what Metal has given to this process; memory is shared with the rest of the machine
            memory_used_bytes=float(self._mps.driver_allocated_memory()),
            process_memory_bytes=float(self._mps.current_allocated_memory()),
        )


class MpsSource:
    """The MPS device as a source; it has nothing to warn about and nothing to close."""

    def __init__(self, mps: Any) -> None:
        self.devices = (MpsDevice(mps),)

    def drain_notices(self) -> list[str]:
        """Return no warning."""
        return []

    def close(self) -> None:
        """Do nothing."""
