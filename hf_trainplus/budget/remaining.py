"""How long the run will still take, from what its own steps, evaluations and saves took. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hf_trainplus.budget.keeping.headroom import Headroom
from hf_trainplus.budget.keeping.measured import PHASES, Measured, Phase
from hf_trainplus.budget.keeping.reserve import DEVIATIONS

# From this many measured steps on, a forecast from measurement replaces an estimate from formulas.
MEASURED_STEPS = 20

# Planned last step of what only time, tokens, energy or money end: more steps than any run takes.
OPEN_STEPS = 10**9


@dataclass(frozen=True)
class Rhythm:
    """When a run evaluates and saves, and where it is to end without a budget.

    Args:
        max_steps: planned last step.
        evaluate_every: steps between evaluations, None for none.
        save_every: steps between saves, None for none.
    """

    max_steps: int
    evaluate_every: int | None = None
    save_every: int | None = None

    def due_in(self, step: int) -> dict[Phase, int | None]:
        """Return the steps until the next evaluation and the next save, 0 for now, None for what never comes.

        Example:
            >>> Rhythm(max_steps=100, evaluate_every=30).due_in(step=40)
            {'evaluation': 20, 'save': None}
        """
        return {
            "evaluation": _to_next(step, self.evaluate_every),
            "save": _to_next(step, self.save_every),
        }

    def ahead(self, step: int, steps_left: int) -> dict[Phase, int]:
        """Return how many steps, evaluations and saves come in the next ``steps_left`` steps.

        The last step is evaluated and saved when the run does either at all.

        Example:
            >>> Rhythm(max_steps=100, evaluate_every=30).ahead(step=40, steps_left=60)
            {'step': 60, 'evaluation': 3, 'save': 0}
        """
        counts: dict[Phase, int] = {"step": steps_left}
        rhythms: tuple[tuple[Phase, int | None], ...] = (
            ("evaluation", self.evaluate_every),
            ("save", self.save_every),
        )
        for phase, every in rhythms:
            end = step + steps_left
            counts[phase] = 0 if not every or not steps_left else end // every - step // every + (end % every > 0)
        return counts


def _to_next(step: int, every: int | None) -> int | None:
    return -step % every if every else None


@dataclass(frozen=True)
class TimeLeft:
    """Forecast of the time to the end of a run.

    Args:
        seconds: time left in all.
        steps: seconds in steps.
        evaluation: seconds in evaluations.
        saving: seconds in saves.
        later_stages: seconds in stages that follow.
        steps_left: steps still to be taken, as a forecast when a budget ends the run.
        ends_by: ``"max_steps"``, or the name of the limit that ends the run.
        measured_steps: steps that the forecast rests on.
    """

    seconds: float
    steps: float
    evaluation: float
    saving: float
    later_stages: float
    steps_left: int
    ends_by: str
    measured_steps: int


def time_left(
    measured: Measured,
    rhythm: Rhythm,
    step: int,
    rooms: Iterable[Headroom] = (),
    *,
    closing: Sequence[Phase] = ("evaluation", "save"),
    margin_seconds: float = 0.0,
    later_stages: float = 0.0,
    stage_rooms: Iterable[Headroom] = (),
) -> TimeLeft | None:
    """Forecast the time to the end of the run.

    It says nothing before 20 steps are measured, and takes later steps to cost what the measured ones did.

    Args:
        measured: costs so far.
        rhythm: planned end, evaluations and saves.
        step: steps done.
        rooms: what is left under each limit of the run, which ends later stages too.
        closing: phases that end a run that its budget ends.
        margin_seconds: time that the budget keeps back.
        later_stages: seconds of the stages that follow this one.
        stage_rooms: what is left under each limit of the stage that runs.

    Returns:
        The forecast, None before 20 steps are measured.

    Example:
        >>> measured = Measured()
        >>> for _ in range(20):
        ...     measured.add("step", {"seconds": 2.0})
        >>> measured.add("evaluation", {"seconds": 10.0})
        >>> left = time_left(measured, Rhythm(max_steps=100, evaluate_every=50), step=20)
        >>> left.seconds, left.steps, left.evaluation, left.ends_by
        (180.0, 160.0, 20.0, 'max_steps')
    """
    if measured.count("step") < MEASURED_STEPS:
        return None
    means = {phase: measured.mean(phase) or 0.0 for phase in PHASES}
    steps_left, ends_by = max(0, rhythm.max_steps - step), "max_steps"
    seconds_left: float | None = None
    most = math.inf
    for room in (*stage_rooms, *(of_run := tuple(rooms))):
        fitting, seconds = _fitting(room, measured, means, rhythm, step, closing, margin_seconds)
        if room in of_run and seconds is not None:
            most = min(most, seconds)
        if fitting < steps_left:
            steps_left, ends_by, seconds_left = fitting, room.limit, seconds
            later_stages = 0.0 if room in of_run else later_stages
    counts = rhythm.ahead(step, steps_left)
    if ends_by != "max_steps":
        counts = _closed(counts, rhythm, closing)
    parts = {phase: counts[phase] * means[phase] for phase in PHASES}
    if seconds_left is not None:
        # the limit fixes the whole; what is not evaluation or saving is steps
        parts["step"] = max(0.0, seconds_left - parts["evaluation"] - parts["save"])
    later_stages = max(0.0, min(later_stages, most - sum(parts.values())))
    return TimeLeft(
        seconds=sum(parts.values()) + later_stages,
        steps=parts["step"],
        evaluation=parts["evaluation"],
        saving=parts["save"],
        later_stages=later_stages,
        steps_left=steps_left,
        ends_by=ends_by,
        measured_steps=measured.count("step"),
    )


def _fitting(
    room: Headroom,
    measured: Measured,
    means: dict[Phase, float],
    rhythm: Rhythm,
    step: int,
    closing: Sequence[Phase],
    margin_seconds: float,
) -> tuple[int, float | None]:
    """Steps that fit under one limit, and the seconds to the end when that limit is one in time."""
    if room.quantity != "seconds":
        cost = measured.mean("step", room.quantity)
        return (math.floor(max(0.0, room.left) / cost + 1e-9) if cost else rhythm.max_steps), None
    closing_seconds = sum(means[phase] for phase in closing)
    reserve = margin_seconds + measured.upper(["step", *closing], "seconds", deviations=DEVIATIONS)
    # the run stops at the first boundary inside the reserve, on average half a step into it
    seconds = max(0.0, room.left - (reserve - means["step"] / 2 - closing_seconds))
    cost_a_step = means["step"]
    if rhythm.evaluate_every:
        cost_a_step += means["evaluation"] / rhythm.evaluate_every
    if rhythm.save_every:
        cost_a_step += means["save"] / rhythm.save_every
    return math.floor(max(0.0, seconds - closing_seconds) / cost_a_step) if cost_a_step else rhythm.max_steps, seconds


def _closed(counts: dict[Phase, int], rhythm: Rhythm, closing: Sequence[Phase]) -> dict[Phase, int]:
    """Count the closing phases of a budget's end where the rhythm alone has none."""
    every = {"evaluation": rhythm.evaluate_every, "save": rhythm.save_every}
    return {phase: max(count, int(phase in closing and not every.get(phase))) for phase, count in counts.items()}
