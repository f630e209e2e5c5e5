"""The machine around the devices: processor, memory, disk and network, through psutil."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from hf_trainplus.monitor.devices.guard import ValueGuard
from hf_trainplus.monitor.devices.reading import GIB


@dataclass(frozen=True)
class HostReading:
    """One look at the machine; None where a value is missing.

    Args:
        cpu_percent: of all cores together, since the last reading, 0 to 100.
        process_cpu_percent: of one core, by the watched process, since the last reading; 250 is two cores and a half.
        memory_used_bytes: of the machine, what cannot be given out again (total - available).
        memory_total_bytes: of the machine.
        process_memory_bytes: resident set of the watched process.
        disk_read_bytes_per_second: all disks, since the last reading.
        disk_write_bytes_per_second: all disks, since the last reading.
        network_receive_bytes_per_second: all interfaces, since the last reading.
        network_send_bytes_per_second: all interfaces, since the last reading.
        disk_free_bytes: where the run writes.

    Example:
        >>> HostReading(cpu_percent=12.5, memory_used_bytes=1024.0**3).numbers()
        {'cpu_percent': 12.5, 'memory_used_gib': 1.0}
    """

    cpu_percent: float | None = None
    process_cpu_percent: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    process_memory_bytes: float | None = None
    disk_read_bytes_per_second: float | None = None
    disk_write_bytes_per_second: float | None = None
    network_receive_bytes_per_second: float | None = None
    network_send_bytes_per_second: float | None = None
    disk_free_bytes: float | None = None

    def numbers(self) -> dict[str, float]:
        """Return what is present, name -> number, with bytes as GiB (``*_gib``)."""
        found: dict[str, float] = {}
        for name, value in asdict(self).items():
            if value is None:
                continue
            if name.endswith("_bytes"):
                found[name.removesuffix("_bytes") + "_gib"] = value / GIB
            else:
                found[name] = value
        return found


class Host:
    """Reads the machine; ``read`` never raises.

    Rates and processor shares are differences of counters since the reading before, so the first reading has none.

    Args:
        psutil_module: a fake of psutil; the real one is imported when None.
        pid: the watched process; the current one when None.
        path: a folder on the disk that the run writes to.
        clock: seconds.

    Raises:
        ValueError: no process has the given ``pid``.
    """

    def __init__(
        self,
        psutil_module: Any = None,
        *,
        pid: int | None = None,
        path: str = ".",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        psutil = import_module("psutil") if psutil_module is None else psutil_module
        self._psutil = psutil
        self._path = path
        self._clock = clock
        self._notices: list[str] = []
        self._guard = ValueGuard(
            "host",
            self._notices,
            errors=(psutil.Error, OSError, AttributeError, NotImplementedError),
            permanent=lambda error: isinstance(error, (AttributeError, NotImplementedError)),
        )
        try:
            self._process = psutil.Process(pid)
        except psutil.NoSuchProcess as error:
            raise ValueError(f"pid={pid}: no such process; allowed is the id of a running one.") from error
        self._before: tuple[float, dict[str, float]] | None = None

    def read(self) -> HostReading:
        """Look once."""
        now, counters = self._clock(), self._counters()
        rates = self._rates(now, counters)
        self._before = (now, counters)
        memory = self._guard.ask("memory", self._psutil.virtual_memory)
        disk = self._guard.ask("disk", lambda: self._psutil.disk_usage(self._path))
        resident = self._guard.ask("process memory", lambda: self._process.memory_info().rss)
        return HostReading(
            memory_used_bytes=None if memory is None else float(memory.total - memory.available),
            memory_total_bytes=None if memory is None else float(memory.total),
            process_memory_bytes=None if resident is None else float(resident),
            disk_free_bytes=None if disk is None else float(disk.free),
            **rates,
        )

    def drain_notices(self) -> list[str]:
        """Return the warnings not yet reported."""
        drained = list(self._notices)
        del self._notices[: len(drained)]
        return drained

    def _counters(self) -> dict[str, float]:
        found: dict[str, float] = {}
        cpu = self._guard.ask("cpu times", self._psutil.cpu_times)
        if cpu is not None:
            # guest time is inside user time already (man 5 proc)
            parts = {name: value for name, value in cpu._asdict().items() if not name.startswith("guest")}
            found["cpu_all"] = sum(parts.values())
            found["cpu_idle"] = parts.get("idle", 0.0) + parts.get("iowait", 0.0)
        own = self._guard.ask("process cpu", self._process.cpu_times)
        if own is not None:
            found["process_cpu"] = own.user + own.system
        # psutil returns None where a container shows no disk or no interface
        disk = self._guard.ask("disk counters", self._psutil.disk_io_counters)
        if disk is not None:
            found["disk_read"], found["disk_write"] = float(disk.read_bytes), float(disk.write_bytes)
        network = self._guard.ask("network counters", self._psutil.net_io_counters)
        if network is not None:
            found["network_receive"], found["network_send"] = float(network.bytes_recv), float(network.bytes_sent)
        return found

    def _rates(self, now: float, counters: dict[str, float]) -> dict[str, float | None]:
        if self._before is None or now <= self._before[0]:
            return {}
        then, before = self._before
        # a counter that went back (an interface or a disk was taken away) tells nothing about this time
        gone = {name: value - before[name] for name, value in counters.items() if value >= before.get(name, math.inf)}
        rates: dict[str, float | None] = {}
        if gone.get("cpu_all", 0.0) > 0 and "cpu_idle" in gone:
            # the kernel's parts are rounded apart and iowait may go back: idle time can pass the whole by a little
            rates["cpu_percent"] = 100.0 * max(1.0 - gone["cpu_idle"] / gone["cpu_all"], 0.0)
        if "process_cpu" in gone:
            rates["process_cpu_percent"] = 100.0 * gone["process_cpu"] / (now - then)
        for name in ("disk_read", "disk_write", "network_receive", "network_send"):
            if name in gone:
                rates[f"{name}_bytes_per_second"] = gone[name] / (now - then)
        return rates
