"""Splits a run into steps, evaluations and saves, and measures what each cost. Pure: readings come in."""

from __future__ import annotations

from collections.abc import Mapping

from hf_trainplus.budget.keeping.measured import Measured, Phase
from hf_trainplus.budget.meter import Reading


def quantities(reading: Reading) -> dict[str, float]:
    """Return what a reading says in the quantities that phases are measured in; what is unknown is left out.

    Example:
        >>> from hf_trainplus.budget.meter import Progress
        >>> quantities(Reading(Progress(steps=2), 10.0, 0.1, None, None))
        {'seconds': 10.0, 'steps': 2.0}
    """
    progress = reading.progress
    amounts = {
        "seconds": reading.wall_clock_seconds,
        "energy_kwh": reading.energy_kwh,
        "steps": progress.steps,
        "epochs": progress.epochs,
        "tokens": progress.tokens,
    }
    return {name: float(amount) for name, amount in amounts.items() if amount is not None}


class Laps:
    """Attributes everything between two marks to one phase and keeps it in a ``Measured``.

    It reads no clock itself. The first step of a session (compilation, caches, workers that start) stands in only
    until a second one is measured.

    Args:
        measured: what is known already, e.g. from the session before.
        reading: reading at the start of training.
    """

    def __init__(self, measured: Measured, reading: Reading) -> None:
        self.measured = measured
        self._mark = quantities(reading)
        self._evaluation: dict[str, float] | None = None
        self._steps = 0
        self._stand_in = measured.count("step") == 0

    def close(self, phase: Phase, reading: Reading) -> None:
        """Say that the time since the last mark was one step, one save, or (a part of) one evaluation.

        Evaluations of several data sets at one boundary are one evaluation: they add up until the next phase.
        """
        spent = self._since_mark(reading)
        if phase == "evaluation":
            self._evaluation = _sum(self._evaluation, spent)
            return
        self.settle()
        if phase == "step":
            self._close_step(spent)
        else:
            self.measured.add(phase, spent)

    def skip(self, reading: Reading) -> None:
        """Say that the time since the last mark belongs to no phase."""
        self.settle()
        self._mark = quantities(reading)

    def settle(self) -> None:
        """Say that the evaluation at this boundary is over; a save or a step says so too."""
        if self._evaluation is not None:
            self.measured.add("evaluation", self._evaluation)
            self._evaluation = None

    def _since_mark(self, reading: Reading) -> dict[str, float]:
        now = quantities(reading)
        spent = {name: now[name] - self._mark[name] for name in now if name in self._mark}
        self._mark = now
        return spent

    def _close_step(self, spent: Mapping[str, float]) -> None:
        self._steps += 1
        if self._steps == 1 and not self._stand_in:
            return
        if self._steps == 2 and self._stand_in:
            self.measured.forget("step")
        self.measured.add("step", spent)


def _sum(total: dict[str, float] | None, more: Mapping[str, float]) -> dict[str, float]:
    return {name: value + (total or {}).get(name, 0.0) for name, value in more.items()}
