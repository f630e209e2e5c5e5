"""Which phase a run is in, told by the thread that trains and read by the one that samples."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PHASES = ("train_step", "waiting", "evaluation", "saving", "other")
"""train_step: forward to optimizer. waiting: from a step to the next, for data or other ranks. evaluation, saving:
what their names say. other: before the first and after the last step."""


class PhaseTimeline:
    """Adds up seconds a phase until they are collected; safe between two threads.

    Args:
        clock: seconds from a fixed, unknown point.

    Example:
        >>> seconds = iter([0.0, 2.0, 5.0, 6.0])
        >>> timeline = PhaseTimeline(clock=lambda: next(seconds))
        >>> timeline.enter("train_step")
        >>> timeline.enter("evaluation")
        >>> timeline.collect()
        {'other': 2.0, 'train_step': 3.0, 'evaluation': 1.0}
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = {}
        self._phase = "other"
        self._since = clock()

    @property
    def phase(self) -> str:
        """The phase that runs."""
        return self._phase

    def enter(self, phase: str) -> None:
        """Say that a phase begins now.

        Raises:
            ValueError: an unknown phase.
        """
        if phase not in PHASES:
            raise ValueError(f"phase={phase!r}; allowed are {', '.join(PHASES)}.")
        with self._lock:
            self._close()
            self._phase = phase

    def collect(self) -> dict[str, float]:
        """Return phase -> seconds since the last call and begin anew."""
        with self._lock:
            self._close()
            seconds, self._seconds = self._seconds, {}
        return seconds

    def _close(self) -> None:
        now = self._clock()
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._since
        self._since = now
