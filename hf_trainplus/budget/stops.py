"""Why a run stops, and the conditions that a rank watches: a stop file, a deadline, one's own. Signals: ``signals``.

A condition speaks for the rank that sees it; that one rank's reason counts for all is the caller's part (one
collective, see ``hf_trainplus.callbacks.agreement``).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path

SLURM_END = "SLURM_JOB_END_TIME"
# seconds since 1970, in September 2001: what lies before was meant as a duration
_NO_TIME_OF_A_RUN = 1e9


class StopReason(str, Enum):
    """Why a run ended; the value is what is recorded. Members are in order of precedence when several hold at once."""

    SIGNAL = "signal"
    STOP_FILE = "stop_file"
    DEADLINE = "deadline"
    BUDGET_SPENT = "budget_spent"
    PATIENCE = "patience"
    PLAN_FINISHED = "plan_finished"
    MAX_STEPS = "max_steps"

    @property
    def urgent(self) -> bool:
        """True when there may be no time left for an evaluation: the sender of a signal does not wait."""
        return self is StopReason.SIGNAL


@dataclass(frozen=True)
class Moment:
    """What a condition may look at.

    Args:
        step: optimizer steps done.
        metrics: metrics of the last evaluation.
    """

    step: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)


class StopCondition(ABC):
    """Decides whether this rank sees a reason to stop. One method; write a class of your own to add a condition.

    ``check`` is called at every step boundary, and by ``PlusTrainer`` between the batches of an evaluation, so it has
    to be cheap and must not talk to other ranks. It may answer differently on each rank.
    """

    @abstractmethod
    def check(self, moment: Moment) -> StopReason | None:
        """Return the reason to stop now, None to go on."""


class StopFile(StopCondition):
    """Stops when a file exists, so that ``touch`` ends a run that takes no signals.

    It neither creates nor removes the file: a run started again stops again until the file is removed. It looks at
    most once in ``every_seconds``, since a look at a network drive is not free.

    Args:
        path: the file to watch.
        every_seconds: shortest time between two looks, in seconds, >= 0.
        clock: seconds from a fixed point.

    Raises:
        ValueError: ``every_seconds`` is negative.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> condition = StopFile(folder / "STOP", every_seconds=0)
        >>> condition.check(Moment()) is None
        True
        >>> (folder / "STOP").touch()
        >>> condition.check(Moment()).value
        'stop_file'
    """

    def __init__(
        self, path: str | Path, *, every_seconds: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if every_seconds < 0:
            raise ValueError(f"every_seconds={every_seconds}; allowed are seconds >= 0.")
        self.path = Path(path)
        self._every_seconds = every_seconds
        self._clock = clock
        self._next_look = clock()
        self._seen = False

    def check(self, moment: Moment) -> StopReason | None:
        """Return ``STOP_FILE`` once the file has been seen."""
        if not self._seen and self._clock() >= self._next_look:
            self._next_look = self._clock() + self._every_seconds
            self._seen = self.path.exists()
        return StopReason.STOP_FILE if self._seen else None


class Deadline(StopCondition):
    """Stops at a point in time. Set aside time for what is left to do through ``reserve_seconds``.

    Args:
        at: reading of ``clock`` at the deadline.
        reserve_seconds: how long before it to stop, in seconds.
        clock: seconds from a fixed point.

    Example:
        >>> now = [0.0]
        >>> deadline = Deadline(10.0, reserve_seconds=2.0, clock=lambda: now[0])
        >>> deadline.check(Moment()), deadline.seconds_left()
        (None, 10.0)
        >>> now[0] = 8.0
        >>> deadline.check(Moment()).value
        'deadline'
    """

    def __init__(self, at: float, *, reserve_seconds: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.at = at
        self.reserve_seconds = reserve_seconds
        self._clock = clock

    def seconds_left(self) -> float:
        """Return the seconds to the deadline; negative after it."""
        return self.at - self._clock()

    def check(self, moment: Moment) -> StopReason | None:
        """Return ``DEADLINE`` from ``reserve_seconds`` before the deadline on."""
        return StopReason.DEADLINE if self.seconds_left() <= self.reserve_seconds else None


class AnyOf(StopCondition):
    """Asks several conditions and returns the first reason in order of precedence.

    Example:
        >>> AnyOf([]).check(Moment()) is None
        True
    """

    def __init__(self, conditions: Iterable[StopCondition]) -> None:
        self.conditions = tuple(conditions)

    def check(self, moment: Moment) -> StopReason | None:
        """Return the strongest reason that any condition gives."""
        reasons = {condition.check(moment) for condition in self.conditions}
        return next((reason for reason in StopReason if reason in reasons), None)


def parse_deadline(given: object, name: str = "deadline") -> float:
    """Read a deadline as seconds since 1970.

    Args:
        given: seconds since 1970 as a number or text (what SLURM_JOB_END_TIME holds), or an ISO 8601 time such as
            ``"2026-05-01T18:00"``; local time unless it has an offset.
        name: what it is called in an error.

    Raises:
        ValueError: neither, named with both forms; or a time before 2001, which is a number of seconds from now on.

    Example:
        >>> parse_deadline("1700000000"), parse_deadline("2023-11-14T22:13:20+00:00")
        (1700000000.0, 1700000000.0)
    """
    at = _seconds_since_1970(given)
    if at is None or not at > _NO_TIME_OF_A_RUN:
        found = "allowed" if at is None else "that is a time before 2001; allowed"
        raise ValueError(f"{name} is {given!r}; {found}: an ISO 8601 time or seconds since 1970. {_way_out(name)}")
    return at


def _seconds_since_1970(given: object) -> float | None:
    if isinstance(given, (int, float)) and not isinstance(given, bool) and given == given:  # NaN is no time
        return float(given)
    if isinstance(given, datetime):
        return given.timestamp()
    text = str(given).strip()
    if text.replace(".", "", 1).isdigit():
        return float(text)
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def _way_out(name: str) -> str:
    if name == SLURM_END:
        return f"Run `unset {SLURM_END}` before the command to go by the other limits alone."
    return "Write deadline='2026-05-01T18:00' or deadline=1777651200; for an hour from now on, budget='wall_clock=1h'."


def find_deadline(given: object, environment: Mapping[str, str], now: float) -> float | None:
    """Return the seconds from ``now`` to the deadline: the earlier of the given one and SLURM's, None without either.

    Args:
        given: what the user asked for, see ``parse_deadline``; None for nothing.
        environment: ``os.environ``, or a stand-in; ``SLURM_JOB_END_TIME`` is read.
        now: seconds since 1970.

    Example:
        >>> find_deadline(None, {"SLURM_JOB_END_TIME": "1700000100"}, now=1700000000.0)
        100.0
        >>> find_deadline(None, {}, now=0.0) is None
        True
    """
    found = (("deadline", given), (SLURM_END, environment.get(SLURM_END)))
    ends = [parse_deadline(text, name) for name, text in found if text not in (None, "")]
    return min(ends) - now if ends else None
