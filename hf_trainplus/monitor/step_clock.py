"""Where the wall-clock time of a run goes: disjoint parts that add up to the whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

PARTS = (
    "data_wait",
    "host_to_device",
    "rank_sync",
    "forward_backward",
    "optimizer",
    "evaluation",
    "saving",
    "skipping",
    "logging",
    "callbacks",
    "other",
)
"""The parts of a run's time, each second in exactly one.

data_wait: the loader has no batch ready. host_to_device: batches are copied. rank_sync: the count of targets is summed
over ranks, and at logging steps their times are exchanged, which waits for the slowest of them. forward_backward: with
gradient reduction inside. optimizer: step, schedule, zeroing. evaluation, saving, logging, callbacks: what their names
say. skipping: a resumed run reads again what it has had of a stream. other: the rest of the loop.
"""

NOT_TRAINING = ("evaluation", "saving", "skipping")
"""The parts that are no training: they are kept out of speed and of the time of a step."""

# what happens inside these belongs to them, whatever it is: an evaluation's own logging or copying is evaluation
_ABSORBING = frozenset({"evaluation", "saving", "logging"})
_NOTHING: AbstractContextManager[None] = nullcontext()


@dataclass(frozen=True)
class PartTimes:
    """Seconds a part since the clock was started, and how long that is.

    Args:
        seconds: part -> seconds; they add up to ``total_seconds``.
        total_seconds: wall-clock time since the start.
        steps: optimizer steps counted.

    Example:
        >>> now = PartTimes({"data_wait": 3.0, "other": 1.0}, 4.0, 2)
        >>> now.minus(PartTimes({"data_wait": 1.0, "other": 0.0}, 1.0, 1)).seconds
        {'data_wait': 2.0, 'other': 1.0}
    """

    seconds: Mapping[str, float]
    total_seconds: float
    steps: int

    def minus(self, earlier: PartTimes) -> PartTimes:
        """Return what was added since ``earlier``, an older reading of the same clock."""
        seconds = {part: value - earlier.seconds.get(part, 0.0) for part, value in self.seconds.items()}
        return PartTimes(seconds, self.total_seconds - earlier.total_seconds, self.steps - earlier.steps)

    def share(self, part: str) -> float | None:
        """Return the share of a part, 0 to 1; None when no time has passed."""
        return self.seconds[part] / self.total_seconds if self.total_seconds > 0 else None

    @property
    def training_seconds(self) -> float:
        """The time without evaluation, saving and skipping: what throughput is counted over."""
        return self.total_seconds - sum(self.seconds.get(part, 0.0) for part in NOT_TRAINING)


class StepClock:
    """Splits time into parts by being told what begins (``switch``, ``phase``) or what has just ended (``lap``).

    There is always exactly one part running, so nothing is counted twice and nothing is lost. It synchronises no
    device: on CUDA a part ends when the host passes on, and time that the device needs beyond that shows where the
    host next waits for it (``DeviceTimer`` measures the device). It belongs to the thread that trains; another thread
    may read it.

    Args:
        clock: seconds from a fixed, unknown point.

    Example:
        >>> seconds = iter([0.0, 3.0, 4.0, 9.0, 9.0])
        >>> clock = StepClock(clock=lambda: next(seconds))
        >>> clock.switch("forward_backward")      # three seconds of "other" have passed
        >>> with clock.phase("host_to_device"):   # one second of forward_backward has
        ...     pass                              # and five seconds of copying
        >>> {part: value for part, value in clock.read().seconds.items() if value}
        {'host_to_device': 5.0, 'forward_backward': 1.0, 'other': 3.0}
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.start()

    @property
    def time(self) -> Callable[[], float]:
        """The clock that is read: seconds from a fixed, unknown point."""
        return self._clock

    @property
    def part(self) -> str:
        """The part that is running."""
        return self._part

    @property
    def depth(self) -> int:
        """How many phases are open."""
        return self._depth

    def start(self) -> None:
        """Begin a new account: all parts at zero, "other" running."""
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._part = "other"
        self._depth = 0
        self._steps = 0
        self._started = self._since = self._clock()

    def count_step(self) -> None:
        """Count one optimizer step."""
        self._steps += 1

    def switch(self, part: str) -> None:
        """Say that ``part`` begins now.

        Does nothing inside a phase of evaluation, saving or logging.

        Raises:
            ValueError: an unknown part.
        """
        if part not in self._seconds:
            raise ValueError(f"part={part!r}; allowed are {', '.join(PARTS)}.")
        if self._depth and self._part in _ABSORBING:
            return
        self._close(self._part)
        self._part = part

    def lap(self, part: str) -> None:
        """Say that the time since the last boundary was ``part``, whatever was running; the running part stays.

        Does nothing inside a phase of evaluation, saving or logging.

        Raises:
            ValueError: an unknown part.
        """
        if part not in self._seconds:
            raise ValueError(f"part={part!r}; allowed are {', '.join(PARTS)}.")
        if self._depth and self._part in _ABSORBING:
            return
        self._close(part)

    def phase(self, part: str) -> AbstractContextManager[None]:
        """Give the time inside a ``with`` to ``part``, then go back to what ran before, also after an exception.

        Inside evaluation, saving or logging an inner phase changes nothing.

        Raises:
            ValueError: an unknown part.
        """
        if part not in self._seconds:
            raise ValueError(f"part={part!r}; allowed are {', '.join(PARTS)}.")
        return _NOTHING if self._depth and self._part in _ABSORBING else _Phase(self, part)

    def enter(self, part: str) -> str:
        """Begin a phase by hand and return what to give to ``leave``; prefer ``phase``."""
        before = self._part
        self._close(before)
        self._part = part
        self._depth += 1
        return before

    def leave(self, before: str) -> None:
        """End the phase that ``enter`` began."""
        self._close(self._part)
        self._part = before
        self._depth -= 1

    def read(self) -> PartTimes:
        """Return the seconds so far, the running part included."""
        now = self._clock()
        seconds = dict(self._seconds)
        seconds[self._part] += now - self._since
        return PartTimes(seconds, now - self._started, self._steps)

    def _close(self, part: str) -> None:
        now = self._clock()
        self._seconds[part] += now - self._since
        self._since = now


class _Phase(AbstractContextManager[None]):
    """One phase; a class, since a generator costs three times as much."""

    __slots__ = ("_before", "_clock", "_part")

    def __init__(self, clock: StepClock, part: str) -> None:
        self._clock = clock
        self._part = part
        self._before = ""

    def __enter__(self) -> None:
        self._before = self._clock.enter(self._part)

    def __exit__(self, *error: object) -> None:
        self._clock.leave(self._before)
