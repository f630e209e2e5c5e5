"""Policies of evaluation on a recorded run: race, full, a random subset, an adaptive interval."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hf_trainplus.decisions.patience import Patience
from hf_trainplus.decisions.race import Race, RaceConfig, drive
from hf_trainplus.decisions.replaying.driver import ReplayDriver
from hf_trainplus.decisions.replaying.trace import ReplayTrace
from hf_trainplus.decisions.schedule import AdaptiveSchedule, EvaluationOutcome
from hf_trainplus.results import Float64Array, Int64Array

POLICIES = ("race", "full", "subset", "adaptive")


@dataclass(frozen=True)
class ReplayOptions:
    """Options of a replay; each policy reads those that concern it.

    Args:
        patience: evaluations of the stock grid without improvement before the run stops; None never stops.
        tolerance: the race's regret allowed, in standard errors of the full-set metric.
        seed: of the race's order and of the random subset.
        fraction: share of rows in the subset, in (0, 1].
        strict: the race's bound is 4.0.
        reload: False races with live weights only.
    """

    patience: int | None = None
    tolerance: float = 0.0
    seed: int = 0
    fraction: float = 0.1
    strict: bool = False
    reload: bool = True

    def __post_init__(self) -> None:
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience={self.patience}; allowed are whole numbers >= 1, or None.")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}; allowed are whole numbers >= 0.")
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction={self.fraction}; allowed are shares in (0, 1], e.g. 0.1.")


@dataclass(frozen=True)
class ReplayResult:
    """What a policy cost and chose, beside stock.

    Args:
        policy: its name.
        metric: "loss" or "error".
        best_index: evaluation that the policy would load at the end.
        best_step: its training step.
        stock_best_index: the one that full evaluation on the whole grid loads.
        stop_index: last evaluation of the grid before the policy stopped.
        stock_stop_index: the same for stock.
        cost: rows evaluated, the winner's full evaluation included, as a share of stock's.
        regret_se: how much worse the choice is on all rows, in standard errors of stock's best.
        false_new_best: evaluations called a new best that were none on all rows.
        reloads: times that kept weights would have been loaded.
        seconds: time of the replay.
    """

    policy: str
    metric: str
    best_index: int
    best_step: int
    stock_best_index: int
    stop_index: int
    stock_stop_index: int
    cost: float
    regret_se: float
    false_new_best: int
    reloads: int
    seconds: float


@dataclass(frozen=True)
class _Outcome:
    best: int
    stop: int
    rows: int
    new_best: list[int]
    reloads: int = 0


def replay(
    trace: ReplayTrace,
    policy: str = "race",
    *,
    metric: str = "loss",
    options: ReplayOptions | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> ReplayResult:
    """Run a policy over a recorded run.

    The subset's winner is evaluated fully at the end, as in training. The adaptive interval starts at the grid's and
    may grow to eight times it; its patience is counted in steps.

    Args:
        trace: the recorded run.
        policy: "race", "full", "subset" or "adaptive".
        metric: "loss" or "error".
        options: patience, tolerance, seed, fraction.
        clock: source of seconds.

    Returns:
        Cost and choice.

    Raises:
        ValueError: another policy or metric, or a trace without a finite value.

    Example:
        >>> levels = np.array([2.0, 0.5, 1.0])[:, None]
        >>> trace = ReplayTrace(levels + np.random.default_rng(0).random((3, 2000)), np.array([10, 20, 30]))
        >>> result = replay(trace, "race")
        >>> result.best_step, result.stock_best_index, result.regret_se, round(result.cost, 2)
        (20, 1, 0.0, 0.37)
    """
    if policy not in POLICIES:
        raise ValueError(f"policy={policy!r}; allowed are {', '.join(POLICIES)}.")
    given = options or ReplayOptions()
    run = {"race": _race, "full": _race, "subset": _subset, "adaptive": _adaptive}[policy]
    levels = trace.values(metric)
    if not bool(np.isfinite(levels).any()):
        raise ValueError("no evaluation of the trace is finite, so none is best; record a run that has finite losses.")
    stock = _watch(enumerate(levels), given.patience)
    start = clock()
    found = run(trace, metric, given, policy == "full")
    return _beside_stock(trace, (policy, metric), found, stock, clock() - start)


def _beside_stock(
    trace: ReplayTrace, names: tuple[str, str], found: _Outcome, stock: _Outcome, seconds: float
) -> ReplayResult:
    policy, metric = names
    levels = trace.values(metric)
    spread = trace.standard_error(metric, stock.best)
    gap = float(levels[found.best] - levels[stock.best])
    lowest = np.minimum.accumulate(np.where(np.isfinite(levels), levels, np.inf))  # no number is never a best
    return ReplayResult(
        policy=policy,
        metric=metric,
        best_index=found.best,
        best_step=int(trace.step[found.best]),
        stock_best_index=stock.best,
        stop_index=found.stop,
        stock_stop_index=stock.stop,
        cost=found.rows / (trace.size * (stock.stop + 1)),
        regret_se=gap / spread if spread > 0 else 0.0 if gap == 0 else float("inf"),
        false_new_best=sum(1 for index in found.new_best if index and not levels[index] < lowest[index - 1]),
        reloads=found.reloads,
        seconds=seconds,
    )


def _race(trace: ReplayTrace, metric: str, options: ReplayOptions, full: bool) -> _Outcome:
    config = RaceConfig(
        strict=options.strict,
        patience=options.patience,
        tolerance=options.tolerance,
        reload=options.reload,
        seed=options.seed,
        full="policy full" if full else None,
        least_rows=1,
    )
    race, driver = Race(trace.metric(metric), trace.size, config, labels=trace.label), ReplayDriver(trace)
    new_best, stop = [], len(trace.step) - 1
    for index in range(len(trace.step)):
        verdict = drive(race.observe(index), driver)
        if verdict.best == index:
            new_best.append(index)
        if verdict.stop:
            stop = index
            break
    best = drive(race.finish(live=stop), driver).best
    if best is None:
        raise ValueError(
            f"the race ended at evaluation {stop} without a finite one: rows that it had not read before are no "
            "numbers; replay it with --policy full."
        )
    return _Outcome(best, stop, race.state.pairs, new_best, race.state.reloads)


def _subset(trace: ReplayTrace, metric: str, options: ReplayOptions, _: bool) -> _Outcome:
    chosen = subset_rows(trace.size, options.fraction, options.seed)
    watched = _watch(enumerate(trace.row_values(metric)[:, chosen].mean(axis=1)), options.patience)
    rows = len(chosen) * (watched.stop + 1) + trace.size - len(chosen)
    return _Outcome(watched.best, watched.stop, rows, watched.new_best)


def subset_rows(size: int, fraction: float, seed: int) -> Int64Array:
    """Return a random subset's rows, ascending."""
    number = max(1, round(fraction * size))
    return np.sort(np.random.default_rng(seed).choice(size, size=number, replace=False)).astype(np.int64)


def _adaptive(trace: ReplayTrace, metric: str, options: ReplayOptions, _: bool) -> _Outcome:
    levels, visited = trace.values(metric), []

    def visits() -> Iterator[tuple[int, float]]:
        for index in _adaptive_indices(trace.step, levels):
            visited.append(index)
            yield index, float(levels[index])

    watched = _watch(visits(), options.patience)
    return _Outcome(watched.best, watched.stop, trace.size * len(visited), watched.new_best)


def _adaptive_indices(steps: Int64Array, levels: Float64Array) -> Iterator[int]:
    grid = int(np.diff(steps).min()) if len(steps) > 1 else max(int(steps[0]), 1)
    schedule = AdaptiveSchedule(grid, 8 * grid)
    following = schedule.next_step(EvaluationOutcome(0, last_step=int(steps[-1])))
    while following is not None:
        index = int(np.searchsorted(steps, following))
        yield index
        outcome = EvaluationOutcome(int(steps[index]), float(levels[index]), last_step=int(steps[-1]))
        following = schedule.next_step(outcome)


def _watch(levels: Iterator[tuple[int, float]] | enumerate[float], patience: int | None) -> _Outcome:
    """Follow (index, level) pairs as stock does: strict improvements are best, patience counts the grid's indices."""
    rule = Patience(patience, unit="steps")
    best, stop, new_best = 0, 0, []
    for index, level in levels:
        verdict = rule.update(float(level), step=index)
        stop = index
        if verdict.improved:
            best = index
            new_best.append(index)
        if verdict.stop:
            break
    return _Outcome(best, stop, 0, new_best)
