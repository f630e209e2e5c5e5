"""The level of one checkpoint's metric: for logs, plateau schedulers and stage advance, never for choosing the best."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.commands import Answer, Command
from hf_trainplus.decisions.racing.course import Course
from hf_trainplus.decisions.racing.judge import Judge, RaceMetric
from hf_trainplus.decisions.racing.opaque import GROUPS, OpaqueMetric
from hf_trainplus.decisions.racing.paired import stratified_variance
from hf_trainplus.decisions.racing.records import LevelVerdict
from hf_trainplus.decisions.racing.state import RaceState

_SMALL, _SMALL_BOUND = 5000, 4.0  # stage decisions on small sets are made at 4 standard errors


def level_of(state: RaceState, judge: Judge, checkpoint: int) -> tuple[float, float] | None:
    """Return ``(value, standard error over the unread rows)``; None when a row is not finite or none was read.

    Where a fully known checkpoint exists, the level is its exact level plus the paired difference to it.

    Args:
        state: holds the rows.
        judge: gives the paired difference.
        checkpoint: what is measured.
    """
    column, metric = state.columns.get(checkpoint), judge.metric
    if column is None or column.nonfinite:
        return None
    if state.full(checkpoint):
        return exact_value(metric, column), 0.0
    if state.references:
        known = state.references[-1]
        found = judge.difference(state, known, checkpoint)
        sign = -1.0 if metric.greater_is_better else 1.0
        return exact_value(metric, state.columns[known]) + sign * found.value, found.se
    return _sampled(state, metric, column, state.depth[checkpoint])


def exact_value(metric: RaceMetric, column: Column) -> float:
    """Return the metric of a fully known column."""
    if isinstance(metric, OpaqueMetric):
        return float(metric.function(np.arange(len(column.values)), column.values))
    return metric.value(column.means)


def decide_level(course: Course, checkpoint: int, level: float) -> Generator[Command, Answer, LevelVerdict]:
    """Read the live checkpoint until it is known whether its metric is at ``level`` or better.

    Args:
        course: the race's steps.
        checkpoint: the live checkpoint.
        level: in units of the metric.
    """
    state, judge = course.state, course.judge
    bound = max(judge.bound, _SMALL_BOUND) if state.size < _SMALL else judge.bound
    while not state.full(checkpoint) and not state.columns[checkpoint].nonfinite:
        found = level_of(state, judge, checkpoint)
        clear = found is not None and 0 < bound * found[1] < abs(found[0] - level)
        if clear and judge.may_judge(state, state.depth[checkpoint]):
            break
        yield from course.deepen(checkpoint, course.planner.next_depth(state, state.depth[checkpoint]))
    found = level_of(state, judge, checkpoint)
    value, se = found if found is not None else (None, None)
    better = value is not None and (value >= level if judge.metric.greater_is_better else value <= level)
    return LevelVerdict(level, better, value, se, state.full(checkpoint))


def _sampled(state: RaceState, metric: RaceMetric, column: Column, depth: int) -> tuple[float, float]:
    design = state.design
    rows, stratum, counts = design.order[:depth], design.ordered_stratum[:depth], design.counts(depth)
    values = column.values[rows]
    if isinstance(metric, OpaqueMetric):
        group = np.arange(depth) % GROUPS
        parts = np.array([metric.function(rows[group != g], values[group != g]) for g in range(GROUPS)])
        spread = (1 - depth / design.size) * (GROUPS - 1) / GROUPS * float(((parts - parts.mean()) ** 2).sum())
        return float(metric.function(rows, values)), float(np.sqrt(spread))
    weight = (design.sizes / design.size / np.maximum(counts, 1))[stratum]
    means = weight @ values
    variance = stratified_variance(values @ metric.gradient(means), stratum, counts, design)
    return metric.value(means), float(np.sqrt(variance))
