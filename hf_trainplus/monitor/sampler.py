"""Look at the devices at a steady pace, in a thread of its own, and keep statistics instead of samples."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hf_trainplus.monitor.devices import Host, OpenDevices
from hf_trainplus.monitor.phases import PhaseTimeline
from hf_trainplus.monitor.time_weighted import PhaseStatistics

# counters: what is told is their growth, and their rate where that is what people read
_COUNTERS = ("energy_joules", "nvlink_tx_gib", "nvlink_rx_gib", "ecc_uncorrected_errors")
_LONGEST_INTERVAL = 86400.0


def check_interval(interval: float) -> None:
    """Refuse seconds between samples at which no sampler could run.

    Raises:
        TypeError: no number.
        ValueError: not above 0, or longer than a day.

    Example:
        >>> check_interval(float("inf"))
        Traceback (most recent call last):
        ValueError: interval=inf; allowed are seconds above 0 and at most 86400, a day, e.g. interval=1.0.
    """
    allowed = f"allowed are seconds above 0 and at most {_LONGEST_INTERVAL:.0f}, a day, e.g. interval=1.0."
    if not isinstance(interval, (int, float)):
        raise TypeError(f"interval={interval!r} is no number; {allowed}")
    if not 0 < interval <= _LONGEST_INTERVAL:
        raise ValueError(f"interval={interval}; {allowed}")


@dataclass(frozen=True)
class SamplerCost:
    """What the sampler itself cost: its thread's processor time, and how many samples were late or left out."""

    samples: int
    missed: int
    cpu_seconds: float
    wall_seconds: float

    @property
    def cpu_percent(self) -> float | None:
        """Share of one core; None before the first sample."""
        return 100.0 * self.cpu_seconds / self.wall_seconds if self.wall_seconds > 0 else None


class Sampler:
    """One daemon thread that reads devices and host every ``interval`` seconds.

    The schedule is absolute: sample k is due at start + k x interval, and a late one does not shift the others; those
    that could not be taken are counted, not made up. The thread never logs and never raises into training: it ends
    with ``stop``, when ``alive`` says no, or with the process.

    Names of the values: ``gpu{i}/{value}`` and ``host/{value}`` as in ``DeviceReading.numbers`` and
    ``HostReading.numbers``, i being the logical (CUDA) index; instead of the driver's counters ``energy_wh`` and
    ``ecc_uncorrected_errors`` since the start, and ``nvlink_tx_gib_per_second``, ``nvlink_rx_gib_per_second``.

    Args:
        opened: the devices.
        host: the machine, or None to leave it out.
        interval: seconds between samples, above 0 and at most a day.
        timeline: which phase the run is in.
        alive: asked before each sample; False ends the thread.
        abandoned: called in the thread when ``alive`` ended it.
        training: the devices are known to be trained on, so that a use that was never above 0 is not believed.
        clock: seconds from a fixed, unknown point.

    Raises:
        TypeError: ``interval`` is no number.
        ValueError: ``interval`` out of range.

    Example:
        >>> sampler = Sampler(OpenDevices(), None, interval=1.0)
        >>> sampler.sample()
        {}
        >>> sampler.cost().samples
        1
    """

    def __init__(
        self,
        opened: OpenDevices,
        host: Host | None,
        *,
        interval: float = 1.0,
        timeline: PhaseTimeline | None = None,
        alive: Callable[[], bool] = lambda: True,
        abandoned: Callable[[], None] = lambda: None,
        training: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_interval(interval)
        self._opened = opened
        self._host = host
        self._interval = interval
        self._alive, self._abandoned = alive, abandoned
        self._training = training
        self._clock = clock
        self.timeline = PhaseTimeline(clock) if timeline is None else timeline
        self._lock = threading.Lock()
        self._run, self._window = PhaseStatistics(), PhaseStatistics()
        self._first: dict[str, float] = {}
        self._before: dict[str, float] = {}
        self._before_at: float | None = None
        self._started = clock()
        self._samples = self._missed = 0
        self._cpu_seconds = 0.0
        self._notices: list[str] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether the thread is at work."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin sampling; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="trainplus-sampler", daemon=True)
            self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End sampling and wait for the thread, at most ``timeout`` seconds; a second call does nothing."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        # the question may keep alive what it asks about
        self._alive = _ended

    def sample(self) -> dict[str, float]:
        """Look once, now, and count it; return name -> value."""
        now, began = self._clock(), time.thread_time()
        durations = self.timeline.collect()
        values = self._read(now)
        with self._lock:
            self._run.add(values, durations)
            self._window.add(values, durations)
            self._samples += 1
            self._cpu_seconds += time.thread_time() - began
        return values

    def take_window(self) -> PhaseStatistics:
        """Return the statistics since the last call and begin a new window."""
        with self._lock:
            window, self._window = self._window, PhaseStatistics()
        return window

    def run_statistics(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """Return the statistics since the start: name -> phase -> mean, min, max, seconds."""
        with self._lock:
            return self._run.to_json()

    def cost(self) -> SamplerCost:
        """Return what sampling has cost so far."""
        return SamplerCost(self._samples, self._missed, self._cpu_seconds, self._clock() - self._started)

    def drain_notices(self) -> list[str]:
        """Return the warnings not yet reported, for a thread that may log."""
        drained, self._notices = self._notices, []
        drained += self._opened.drain_notices()
        return drained + ([] if self._host is None else self._host.drain_notices())

    def _work(self) -> None:
        due = 0
        while not self._stop.is_set():
            if not self._alive():
                self._abandoned()
                return
            try:
                self.sample()
            except Exception as error:  # a thread that dies in silence would look like a healthy one
                self._notices.append(f"device sampling has ended: {type(error).__name__}: {error}")
                return
            elapsed = self._clock() - self._started
            next_due = max(due + 1, int(elapsed / self._interval) + 1)
            self._missed += next_due - due - 1
            due = next_due
            self._stop.wait(max(0.0, self._started + due * self._interval - self._clock()))

    def _read(self, now: float) -> dict[str, float]:
        values: dict[str, float] = {}
        for device in self._opened.devices:
            index, numbers = device.info.index, device.read().numbers()
            use = self._opened.trust[index].judge(numbers.pop("utilization_percent", None), working=self._training)
            if use is not None:
                numbers["utilization_percent"] = use
            values |= {f"gpu{index}/{name}": value for name, value in self._grown(index, numbers, now).items()}
        if self._host is not None:
            values |= {f"host/{name}": value for name, value in self._host.read().numbers().items()}
        self._before_at = now
        return values

    def _grown(self, index: int, numbers: dict[str, float], now: float) -> dict[str, float]:
        told: dict[str, float] = {}
        for name, value in numbers.items():
            if name not in _COUNTERS:
                told[name] = value
                continue
            key = f"{index}/{name}"
            first, before = self._first.setdefault(key, value), self._before.get(key)
            self._before[key] = value
            if name == "energy_joules":
                told["energy_wh"] = (value - first) / 3600.0
            elif name == "ecc_uncorrected_errors":
                told[name] = value - first
            elif before is not None and self._before_at is not None and now > self._before_at and value >= before:
                told[f"{name}_per_second"] = (value - before) / (now - self._before_at)
        return told


def _ended() -> bool:
    return False


def device_facts(opened: OpenDevices) -> list[dict[str, Any]]:
    """Return what stays the same about each device, and whether its use can be measured, as JSON values."""
    facts = []
    for device in opened.devices:
        info = device.info
        facts.append(
            {
                "index": info.index,
                "name": info.name,
                "uuid": info.uuid,
                "kind": info.kind,
                "matched_by": info.matched_by,
                "utilization": opened.trust[info.index].status,
            }
        )
    return facts
