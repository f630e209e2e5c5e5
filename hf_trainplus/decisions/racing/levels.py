"""The level of one checkpoint's metric: for logs, plateau schedulers and stage advance, never for choosing the best."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.commands import Answer, Command
from hf_trainplus.decisions.racing.course import Course
from hf_trainplus.decisions.racing.judge import Judge, RaceMetric
from hf_trainplus.decisions.racing.metrics import ScoreMetric, unit_of
from hf_trainplus.decisions.racing.opaque import GROUPS, OpaqueMetric
from hf_trainplus.decisions.racing.paired import critical_value
from hf_trainplus.decisions.racing.records import LevelVerdict
from hf_trainplus.decisions.racing.sample import Sample
from hf_trainplus.decisions.racing.state import RaceState
from hf_trainplus.decisions.racing.sums import combine, totals

_SMALL, _SMALL_BOUND = 5000, 4.0  # stage decisions on small sets are made at 4 standard errors


@dataclass(frozen=True)
class Level:
    """Estimate of one checkpoint's metric: value, standard error over the unread rows, and how many rows inform it."""

    value: float
    se: float
    informed: int
    freedom: float = np.inf


def level_of(state: RaceState, judge: Judge, checkpoint: int, *, at: float | None = None) -> Level | None:
    """Return the level of a checkpoint; None when a row is not finite or none was read.

    Where a fully known checkpoint exists, the level is its exact level plus the paired difference to it.

    Args:
        state: holds the rows.
        judge: gives the paired difference.
        checkpoint: what is measured.
        at: level that it is to be told from; None for display.
    """
    column, metric = state.columns.get(checkpoint), judge.metric
    if column is None or column.nonfinite:
        return None
    if state.full(checkpoint):
        return Level(exact_value(metric, column), 0.0, state.size)
    if checkpoint not in state.depth:
        return None
    if not state.references:
        return _sampled(state, metric, column, state.depth[checkpoint], at)
    known = state.references[-1]
    exact, sign = exact_value(metric, state.columns[known]), -1.0 if metric.greater_is_better else 1.0
    found = judge.difference(state, known, checkpoint, at=0.0 if at is None else sign * (at - exact))
    return Level(exact + sign * found.value, found.se, found.discordant, found.freedom)


def exact_value(metric: RaceMetric, column: Column) -> float:
    """Return the metric of a fully known column."""
    if isinstance(metric, OpaqueMetric):
        return float(metric.function(np.arange(len(column.values)), column.values))
    return metric.value(column.means)


def decide_level(
    course: Course, checkpoint: int, level: float, *, exact_if_reached: bool = False
) -> Generator[Command, Answer, LevelVerdict]:
    """Read the live checkpoint until it is known whether its metric is at ``level`` or better.

    Args:
        course: the race's steps.
        checkpoint: the live checkpoint.
        level: in units of the metric; every finite value is on one side of an infinite one.
        exact_if_reached: read every row of a checkpoint that reaches the level, since its value will be the next one.
    """
    state, judge = course.state, course.judge
    while np.isfinite(level) and not state.full(checkpoint) and not state.columns[checkpoint].nonfinite:
        sure = _certain_side(judge.metric, state.columns[checkpoint], level)
        if sure is not None or _clear(state, judge, checkpoint, level):
            break
        yield from course.deepen(checkpoint, course.planner.next_depth(state, state.depth[checkpoint]))
    verdict = _level_verdict(state, judge, checkpoint, level)
    if exact_if_reached and verdict.reached and not verdict.exact:
        yield from course.deepen(checkpoint, state.size)
        verdict = _level_verdict(state, judge, checkpoint, level)
    return verdict


def _level_verdict(state: RaceState, judge: Judge, checkpoint: int, level: float) -> LevelVerdict:
    found = level_of(state, judge, checkpoint)
    if found is None:
        return LevelVerdict(level, False, None, None, False)
    sure = _certain_side(judge.metric, state.columns[checkpoint], level)
    up = judge.metric.greater_is_better
    reached = (found.value >= level if up else found.value <= level) if sure is None else sure
    value = found.value
    if reached != (value >= level if up else value <= level):
        # a scheduler that compares the value itself must see the side that is certain
        value = level if reached else float(np.nextafter(level, -np.inf if up else np.inf))
    return LevelVerdict(level, reached, value, found.se, state.full(checkpoint))


def _clear(state: RaceState, judge: Judge, checkpoint: int, level: float) -> bool:
    if not judge.may_judge(state, state.depth[checkpoint]):
        return False
    bound = max(judge.bound, _SMALL_BOUND) if state.size < _SMALL else judge.bound
    found = level_of(state, judge, checkpoint, at=level)
    enough = found is not None and found.informed >= judge.config.min_discordant and found.se > 0
    return found is not None and enough and abs(found.value - level) > critical_value(bound, found.freedom) * found.se


def _certain_side(metric: RaceMetric, column: Column, level: float) -> bool | None:
    """Whether a bounded score reaches the level whatever the unread rows hold; None when that is not certain."""
    if not isinstance(metric, ScoreMetric) or column.full:
        return None
    missing, size = len(column.seen) - column.count, len(column.seen)
    low, high = (column.first_sum + metric.lower * missing) / size, (column.first_sum + metric.upper * missing) / size
    if metric.greater_is_better:
        return True if low >= level else False if high < level else None
    return True if high <= level else False if low > level else None


def _sampled(state: RaceState, metric: RaceMetric, column: Column, depth: int, at: float | None) -> Level:
    design = state.design
    if isinstance(metric, OpaqueMetric):
        rows = design.order[:depth]
        values, group = column.values[rows], np.arange(depth) % GROUPS
        parts = np.array([metric.function(rows[group != g], values[group != g]) for g in range(GROUPS)])
        spread = (1 - depth / design.size) * (GROUPS - 1) / GROUPS * float(((parts - parts.mean()) ** 2).sum())
        return Level(float(metric.function(rows, values)), float(np.sqrt(spread)), depth, GROUPS - 1)
    sample = Sample(design, depth)
    values = column.values[sample.rows]
    means = totals(sample.weight, values)
    value = metric.value(means)
    variance, freedom = sample.variance_at(
        combine(values, metric.gradient(means)), 0.0 if at is None else value - at, unit_of(metric)
    )
    return Level(value, float(np.sqrt(variance)), depth, freedom)
