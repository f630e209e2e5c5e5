"""Keeps one run inside its budget: meters, measured costs and the decision at every boundary, in one object.

Pure: it knows no Trainer. ``BudgetCallback`` tells it what happens and does what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hf_trainplus.budget.budget import Budget, format_limit
from hf_trainplus.budget.keeping.headroom import DEADLINE, Headroom, headrooms
from hf_trainplus.budget.keeping.laps import Laps
from hf_trainplus.budget.keeping.measured import Measured, Phase
from hf_trainplus.budget.keeping.reserve import exceeded, share_used, unmeasured
from hf_trainplus.budget.meter import Meter, Progress, Reading
from hf_trainplus.budget.remaining import Rhythm, TimeLeft, time_left
from hf_trainplus.budget.units import format_duration


@dataclass(frozen=True)
class Verdict:
    """What one rank finds at a boundary.

    Args:
        limit: the limit that ends the run now (``"deadline"`` among them), None while another step fits.
        postpone: what is due at this boundary would leave no time for a further step and the closing phases; it moves
            to the end of the run, which is that close.
        probe: closing phases to run once now, because no one knows yet what they cost.
        share: share of the training that the budget allows, 0 to 1; None without a limit.
    """

    limit: str | None
    postpone: bool
    probe: tuple[Phase, ...]
    share: float | None


class BudgetKeeper:
    """Says at every step boundary whether another step fits.

    It does not stop anything, it does not talk to other ranks, and it does not count what happens between the last
    checkpoint and a kill.

    Args:
        budget: the limits; an empty one never ends a run.
        meter: counts what is spent.
        deadline_seconds: seconds left to the deadline, or None; a function, so that a clock can be passed in.
        margin_seconds: time kept back for leaving the process, in seconds, >= 0.
        expected_seconds: what an evaluation or a save is known to take, until it is measured.

    Raises:
        ValueError: a negative margin, or ``budget.usd`` without a price.

    Example:
        >>> now = [0.0]
        >>> keeper = BudgetKeeper(Budget(wall_clock=10), Meter(clock=lambda: now[0]), margin_seconds=0)
        >>> keeper.begin(Progress())
        >>> for step in range(1, 6):
        ...     now[0] += 1.0
        ...     keeper.close("step", Progress(steps=step))
        >>> keeper.verdict(Progress(steps=5), closing=()).limit is None
        True
        >>> now[0] = 9.5
        >>> keeper.verdict(Progress(steps=5), closing=()).limit
        'wall_clock'
    """

    def __init__(
        self,
        budget: Budget,
        meter: Meter,
        *,
        deadline_seconds: Callable[[], float | None] = lambda: None,
        margin_seconds: float = 1.0,
        expected_seconds: Mapping[Phase, float] | None = None,
    ) -> None:
        if margin_seconds < 0:
            raise ValueError(f"margin_seconds={margin_seconds}; allowed are seconds >= 0.")
        if budget.usd is not None and meter.usd_per_device_hour is None:
            raise ValueError(f"budget usd={budget.usd:g} needs a price. Set usd_per_device_hour=2.5.")
        self.budget = budget
        self.meter = meter
        self.margin_seconds = margin_seconds
        self._deadline_seconds = deadline_seconds
        self._expected = dict(expected_seconds or {})
        self._first: tuple[Headroom, ...] = ()
        self._before_training: dict[str, float] = {}
        self.measured = Measured()
        self._laps: Laps | None = None
        self._saved: dict[str, Any] | None = None

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from the state of an earlier session; call it before ``begin``."""
        measured = Measured.from_state(saved["measured"])
        # the state is written inside a save, so the end of that save is not in its meters
        self.meter.resume(saved["meter"], uncounted_seconds=measured.mean("save") or 0.0)
        if saved["meter"]["devices"] == self.meter.devices:
            self.measured = measured
        self._saved = dict(saved)

    def begin(self, progress: Progress) -> None:
        """Say that training begins (or goes on) here."""
        reading = self.meter.read(progress)
        for phase, seconds in self._expected.items():
            if not self.measured.count(phase):
                self.measured.add(phase, {"seconds": seconds})
        self._laps = Laps(self.measured, reading)
        rooms = self._rooms(reading)
        spent = reading.spent()
        before = self._saved["before_training"] if self._saved else {}
        self._before_training = {room.limit: before.get(room.limit, spent.get(room.limit, 0.0)) for room in rooms}
        self._first = tuple(_with_spent(room, self.budget, self._before_training[room.limit]) for room in rooms)

    def close(self, phase: Phase, progress: Progress) -> None:
        """Say that a step, a save or (a part of) an evaluation ends here."""
        if self._expected.pop(phase, None) is not None:
            self.measured.forget(phase)
        if self._laps:
            self._laps.close(phase, self.meter.read(progress))

    def skip(self, progress: Progress) -> None:
        """Say that what happened since the last mark belongs to no phase."""
        if self._laps:
            self._laps.skip(self.meter.read(progress))

    def verdict(
        self,
        progress: Progress,
        *,
        pending: Sequence[Phase] = (),
        closing: Sequence[Phase] = ("evaluation", "save"),
        due_in: Mapping[Phase, int | None] | None = None,
    ) -> Verdict:
        """Judge whether another step fits.

        Args:
            progress: where training is.
            pending: phases that are due at this boundary.
            closing: phases that end the run.
            due_in: steps until a phase is due anyway, so that none is measured early that comes soon.
        """
        rooms = self.rooms(progress)
        due = now = self._exceeded(rooms, pending, closing)
        if due and pending:
            now = self._exceeded(rooms, (), closing)
        unseen = [phase for phase in closing if phase not in pending]
        probe = unmeasured(rooms, self._first, self.measured, unseen, due_in)
        share = share_used(rooms, self._first, self.measured, closing=closing, margin_seconds=self.margin_seconds)
        return Verdict(now.limit if now else None, due is not None and now is None, () if due else probe, share)

    def overdue(self, progress: Progress, closing: Sequence[Phase] = ("save",), seconds: float = 0.0) -> bool:
        """Say whether a limit in time leaves no more than what ends the run: what runs now must be left.

        Args:
            progress: where training is.
            closing: phases that are still to be done.
            seconds: what goes on takes at least, before it can be left again.
        """
        rooms = [room for room in self.rooms(progress) if room.quantity == "seconds"]
        kept_back = self.margin_seconds + seconds
        return exceeded(rooms, self.measured, closing=closing, margin_seconds=kept_back, another=()) is not None

    def _exceeded(
        self, rooms: Sequence[Headroom], pending: Sequence[Phase], closing: Sequence[Phase]
    ) -> Headroom | None:
        return exceeded(rooms, self.measured, pending=pending, closing=closing, margin_seconds=self.margin_seconds)

    def time_left(
        self,
        progress: Progress,
        rhythm: Rhythm,
        *,
        closing: Sequence[Phase] = ("evaluation", "save"),
        later_stages: float = 0.0,
        stage_rooms: Sequence[Headroom] = (),
    ) -> TimeLeft | None:
        """Forecast the time to the end of the run, None before 20 steps are measured (see ``remaining.time_left``)."""
        return time_left(
            self.measured,
            rhythm,
            progress.steps,
            self.rooms(progress),
            closing=closing,
            margin_seconds=self.margin_seconds,
            later_stages=later_stages,
            stage_rooms=stage_rooms,
        )

    def rooms(self, progress: Progress) -> tuple[Headroom, ...]:
        """Return what is left under every limit and under the deadline."""
        return self._rooms(self.meter.read(progress))

    def _rooms(self, reading: Reading) -> tuple[Headroom, ...]:
        return headrooms(
            self.budget,
            reading,
            devices=self.meter.devices,
            usd_per_device_hour=self.meter.usd_per_device_hour,
            deadline_seconds=self._deadline_seconds(),
        )

    def describe(self, limit: str, progress: Progress) -> str:
        """Write what is spent of a limit, for a person: ``gpu_hours: 7.98 of 8``."""
        if limit == DEADLINE:
            left = self._deadline_seconds() or 0.0
            return f"{format_duration(abs(left))} {'left' if left >= 0 else 'past it'}"
        spent = self.meter.read(progress).spent()[limit]
        return f"{limit}: {format_limit(limit, spent)} of {format_limit(limit, self.budget.limits()[limit])}"

    def state(self) -> dict[str, Any]:
        """Return plain JSON values for a checkpoint; the evaluation of its own step is in them."""
        if self._laps:
            self._laps.settle()
        return {
            "meter": self.meter.state(),
            "measured": self.measured.state(),
            "before_training": {limit: spent for limit, spent in self._before_training.items() if limit != DEADLINE},
            "limits": self.budget.limits(),
        }


def _with_spent(room: Headroom, budget: Budget, spent: float) -> Headroom:
    """What was left of a limit when only ``spent`` of it was used."""
    limit = budget.limits().get(room.limit)
    if limit is None or room.total is None:
        return room
    return Headroom(room.limit, room.quantity, room.total * (1 - spent / limit), room.total)
