"""When a race stops a run: settled only as far as the stop depends on it."""

from __future__ import annotations

from collections.abc import Generator

from hf_trainplus.decisions.racing.commands import Answer, Command
from hf_trainplus.decisions.racing.course import Course
from hf_trainplus.decisions.racing.levels import exact_value


def patience_runs_out(course: Course, position: float) -> Generator[Command, Answer, bool]:
    """Settle what the stop depends on, and say whether patience has run out.

    Args:
        course: the race's steps; its configuration's patience and threshold count.
        position: place of this observation on patience's scale.
    """
    config, state = course.config, course.state
    if config.threshold > 0:
        _reset_if_improved(course, position)
    patience = config.patience
    if patience is None:
        return False
    if config.threshold > 0 or not state.candidates:
        return position - state.reset_position >= patience
    place = {item.checkpoint: item.position for item in state.candidates}

    def old(checkpoint: int) -> bool:
        return position - place[checkpoint] >= patience

    def one_sided() -> bool:
        ages = [old(checkpoint) for checkpoint in state.open]
        return all(ages) or not any(ages)

    yield from course.resolve(one_sided, lambda a, b: old(a) != old(b))
    return all(old(checkpoint) for checkpoint in state.open)


def _reset_if_improved(course: Course, position: float) -> None:
    """Take any strict improvement as the new best; only one beyond the threshold resets patience."""
    state = course.state
    if not state.candidates or not state.full(state.open[0]):
        return
    value = exact_value(course.judge.metric, state.columns[state.open[0]])
    if state.best_value is None or abs(value - state.best_value) > course.config.threshold:
        state.reset_position = position
    state.best_value = value
