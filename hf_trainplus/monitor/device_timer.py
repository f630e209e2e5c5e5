"""How long the device itself works on a part of a step, without ever waiting for it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol


class DeviceEvent(Protocol):
    """A mark in a device's queue, as ``torch.cuda.Event(enable_timing=True)``."""

    def record(self) -> None:
        """Put the mark into the queue."""

    def query(self) -> bool:
        """Tell whether the device has passed the mark; does not wait."""

    def elapsed_time(self, end_event: Any) -> float:
        """Return milliseconds between two passed marks."""


class DeviceTimer:
    """Sums device time a part from pairs of marks, and reads each pair only once the device has passed it.

    It never synchronises: a pair that is not passed yet stays for a later look, and when ``capacity`` pairs are
    waiting the oldest is dropped and counted in ``dropped``. The time between two marks contains the device's own
    idle gaps. ``look`` notes whether the device has nothing left to do at a moment when the host has just finished
    queueing: often so means a device that waits for the host.

    Args:
        make_event: makes a mark, e.g. ``lambda: torch.cuda.Event(enable_timing=True)``.
        capacity: pairs kept waiting, >= 1.
        patience: seconds within which an idle device passes a mark, >= 0. A look asks no longer than that: a mark
            takes some microseconds to reach a device and come back, and asked for at once it is passed on no device.
        clock: seconds from a fixed, unknown point, fine enough for ``patience``.

    Raises:
        ValueError: ``capacity`` below 1, or a negative ``patience``.
    """

    def __init__(
        self,
        make_event: Callable[[], DeviceEvent],
        *,
        capacity: int = 256,
        patience: float = 30e-6,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if capacity < 1 or patience < 0:
            raise ValueError(
                f"capacity={capacity}, patience={patience}; allowed are 1 or more and seconds >= 0, "
                "e.g. DeviceTimer(make_event, capacity=256)."
            )
        self._make_event = make_event
        self._capacity = capacity
        self._patience = patience
        self._clock = clock
        self._free: list[DeviceEvent] = []
        self._waiting: deque[tuple[str, DeviceEvent, DeviceEvent]] = deque()
        self._open: tuple[str, DeviceEvent] | None = None
        self._seconds: dict[str, float] = {}
        self.dropped = 0
        self._looks = 0
        self._idle_looks = 0

    def begin(self, part: str) -> None:
        """Mark the start of a part; a part that is still open is given up."""
        if self._open is not None:
            self._free.append(self._open[1])
        self._open = (part, self.mark())

    def end(self) -> None:
        """Mark the end of the open part; without one, nothing happens."""
        if self._open is None:
            return
        part, start = self._open
        self._open = None
        self._keep(part, start, self.mark())

    def mark(self) -> DeviceEvent:
        """Put a mark into the queue and return it, for ``add``."""
        event = self._event()
        event.record()
        return event

    def add(self, part: str, start: Any, end: Any) -> None:
        """Count the time between two marks as ``part``, once the device has passed them."""
        self._keep(part, start, end)

    def collect(self) -> dict[str, float]:
        """Return seconds a part over all pairs that the device has passed since the start."""
        while self._waiting and self._waiting[0][2].query():
            part, start, event = self._waiting.popleft()
            if start is not event:
                self._seconds[part] = self._seconds.get(part, 0.0) + start.elapsed_time(event) / 1e3
                self._free.append(start)
            self._free.append(event)
        return dict(self._seconds)

    @property
    def idle_share(self) -> float | None:
        """Share of looks at which the device had nothing left to do, 0 to 1; None before the first look."""
        return self._idle_looks / self._looks if self._looks else None

    def look(self) -> None:
        """Note whether the device's queue is empty now; asks for ``patience`` seconds at most and never blocks."""
        event = self.mark()
        until = self._clock() + self._patience
        while not (passed := event.query()) and self._clock() < until:
            pass
        self._looks += 1
        self._idle_looks += passed
        # the mark may still be queued: it joins the ring as a pair of no length, and is reused once passed
        self._keep("", event, event)

    def _event(self) -> DeviceEvent:
        return self._free.pop() if self._free else self._make_event()

    def _keep(self, part: str, start: DeviceEvent, event: DeviceEvent) -> None:
        if len(self._waiting) >= self._capacity:
            self._forget_oldest()
        self._waiting.append((part, start, event))

    def _forget_oldest(self) -> None:
        _, start, event = self._waiting.popleft()
        self._free += [start] if start is event else [start, event]
        self.dropped += start is not event
