"""The Apple GPU: Metal tells torch its memory, and nothing else."""

from __future__ import annotations

from typing import Any

from hf_trainplus.monitor.devices.guard import ValueGuard
from hf_trainplus.monitor.devices.reading import DeviceInfo, DeviceReading


class MpsDevice:
    """The one MPS device; it knows memory only, the rest is missing.

    Args:
        mps: the module ``torch.mps`` or a fake of it.
        notices: list that a warning is appended to.

    Example:
        >>> from types import SimpleNamespace
        >>> fake = SimpleNamespace(driver_allocated_memory=lambda: 10, current_allocated_memory=lambda: 7)
        >>> reading = MpsDevice(fake).read()
        >>> reading.memory_used_bytes, reading.process_memory_bytes, reading.utilization_percent
        (10.0, 7.0, None)
    """

    def __init__(self, mps: Any, notices: list[str] | None = None) -> None:
        self.info = DeviceInfo(0, "Apple GPU", None, "mps", "only device")
        self._mps = mps
        notices = [] if notices is None else notices
        self._guard = ValueGuard(
            "mps:0",
            notices,
            errors=(RuntimeError, AttributeError),
            permanent=lambda error: isinstance(error, AttributeError),
        )

    def read(self) -> DeviceReading:
        """Ask Metal for this process's memory; it never raises."""
        mps, ask = self._mps, self._guard.ask
        return DeviceReading(
            # what Metal has given to this process; memory is shared with the rest of the machine
            memory_used_bytes=ask("memory_used_bytes", lambda: float(mps.driver_allocated_memory())),
            process_memory_bytes=ask("process_memory_bytes", lambda: float(mps.current_allocated_memory())),
        )


class MpsSource:
    """The MPS device as a source; it has nothing to close."""

    def __init__(self, mps: Any) -> None:
        self._notices: list[str] = []
        self.devices = (MpsDevice(mps, self._notices),)

    def drain_notices(self) -> list[str]:
        """Return the warnings not yet reported."""
        drained = list(self._notices)
        del self._notices[: len(drained)]
        return drained

    def close(self) -> None:
        """Do nothing."""
