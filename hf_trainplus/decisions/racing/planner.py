"""Which comparison is cheapest to settle, and how deep it must be read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hf_trainplus.decisions.racing.judge import Judge
from hf_trainplus.decisions.racing.opaque import OpaqueMetric
from hf_trainplus.decisions.racing.paired import critical_values
from hf_trainplus.decisions.racing.state import RaceState
from hf_trainplus.decisions.racing.sums import total

_PESSIMISM = 0.5  # standard errors by which an estimated difference is taken to be smaller than it looks
_LOAD_SHARE = 0.001  # what a load is taken to cost, in rows as a share of N, until one was measured
_STEP = 0.025  # share of N after which certainty is looked for again; it takes no chance, so it may be often


@dataclass(frozen=True)
class Plan:
    """Reading that is expected to settle one comparison.

    Args:
        first: older checkpoint.
        second: newer checkpoint.
        depth: depth at which it is expected to be settled.
        rows: rows to be read for that, loading counted as rows.
        certain: settled by what unread rows can still do, not by a standard error.
    """

    first: int
    second: int
    depth: int
    rows: int
    certain: bool


class Planner:
    """Plans from estimates; a wrong plan costs rows, never a wrong verdict.

    Args:
        judge: gives the estimates.
    """

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        size = int(judge.looks[-1])
        self._bounds = np.array([judge.bound_at(float(look) / size) for look in judge.looks])
        self._known_plans: dict[tuple[object, ...], Plan] = {}
        self._known_gains: dict[tuple[int, int, int, int], float] = {}

    def forget(self) -> None:
        """Forget what was computed for earlier calls."""
        self._known_gains.clear()
        self._known_plans.clear()

    def plans(self, state: RaceState, live: int | None, pairs: list[tuple[int, int]]) -> list[Plan]:
        """Return a plan for each pair (older, newer), the cheapest first."""
        found = [self._remembered(state, older, newer, live) for older, newer in pairs]
        return sorted(found, key=lambda plan: (plan.rows, plan.depth, plan.first, plan.second))

    def _remembered(self, state: RaceState, older: int, newer: int, live: int | None) -> Plan:
        """Plan a pair again only when one of the two was read deeper or the evidence changed."""
        depths = (state.depth[older], state.depth[newer])
        key = (live, *depths, *self.judge.evidence(state, older, newer))
        if key not in self._known_plans:
            self._known_plans[key] = self.plan(state, older, newer, live)
        return self._known_plans[key]

    def plan(self, state: RaceState, older: int, newer: int, live: int | None) -> Plan:
        """Return the cheaper of settling the pair by its standard error and by certainty."""
        depth = self._bound_depth(state, older, newer)
        rows = self._rows(state, (older, newer), depth, live)
        sure = self._certain_depth(state, older, newer)
        if sure is not None:
            other = newer if older == state.anchor else older
            needed = self._rows(state, (other,), sure, live)
            if needed < rows:
                return Plan(older, newer, sure, needed, True)
        return Plan(older, newer, depth, rows, False)

    def next_depth(self, state: RaceState, depth: int) -> int:
        """Return the next look after ``depth``, closer ones where certainty can be looked for."""
        looks = self.judge.looks
        found = int(looks[min(int(np.searchsorted(looks, depth, side="right")), len(looks) - 1)])
        milestone = state.design.milestone
        if milestone is None:
            return found
        if depth < milestone < found:
            return milestone
        if depth < milestone:
            return found
        chunk = self.judge.config.chunk
        step = max(int(_STEP * state.size), chunk, 1)
        return min(found, -(-(depth + step) // chunk) * chunk)

    def leader(self, state: RaceState) -> int:
        """Return the open checkpoint that looks best; the deepest ones meet last, where estimates are sharpest."""
        found, *others = sorted(state.open, key=lambda checkpoint: (state.depth[checkpoint], checkpoint))
        for other in others:
            older, newer = min(found, other), max(found, other)
            worse = self.judge.difference(state, older, newer).value
            found = older if worse >= 0 else newer
        return found

    def _bound_depth(self, state: RaceState, older: int, newer: int) -> int:
        size = state.size
        depth = min(state.depth[older], state.depth[newer])
        found = self.judge.difference(state, older, newer)
        wanted = max(abs(found.value) - _PESSIMISM * found.se, 0.0) + self.judge.slack(state, older, newer)
        following = int(np.searchsorted(self.judge.looks, depth, side="right"))
        looks = self.judge.looks[following:]
        if depth >= size or not len(looks):
            return size
        shrink = (size / looks - 1) / max(size / depth - 1, 1e-12)
        bounds = self._bounds[following:]
        critical = critical_values(bounds, found.freedom * looks / depth) if np.isfinite(found.freedom) else bounds
        enough = np.flatnonzero(critical * found.se * np.sqrt(shrink) <= wanted)
        return int(looks[enough[0]]) if len(enough) else size

    def _certain_depth(self, state: RaceState, older: int, newer: int) -> int | None:
        """Depth at which the other checkpoint is expected to have lost more than it can gain; None if it seems better.

        All gains are known at the milestone; losses come in the order of the design.
        """
        milestone, anchor = state.design.milestone, state.anchor
        if milestone is None or anchor not in (older, newer):
            return None
        found = self.judge.difference(state, older, newer)
        worse = found.value if older == anchor else -found.value
        if worse <= 0 and found.discordant > 0:
            return None
        other = newer if older == anchor else older
        key = (other, int(anchor), state.depth[other], state.design.number)
        if key not in self._known_gains:
            self._known_gains[key] = self._gains(state, other, int(anchor))
        gains = self._known_gains[key]
        losses = max(gains + worse, 1e-12)
        place = int(np.searchsorted(state.design.losses_met, min(1.0, gains / losses)))
        return max(min(place + 1, state.size), milestone)

    def _gains(self, state: RaceState, other: int, anchor: int) -> float:
        metric = self.judge.metric
        if isinstance(metric, OpaqueMetric):
            return 0.0
        sample, _ = self.judge.samples.get(state, metric, state.depth[other], adjusted=False)
        move = state.columns[other].values[sample.rows, 0] - state.columns[anchor].values[sample.rows, 0]
        return total(sample.weight, np.maximum(move if metric.greater_is_better else -move, 0.0))

    @staticmethod
    def _rows(state: RaceState, checkpoints: tuple[int, ...], depth: int, live: int | None) -> int:
        load = state.costs.load_rows
        if load is None:
            load = int(_LOAD_SHARE * state.size)
        missing = [(max(0, depth - state.depth[checkpoint]), checkpoint != live) for checkpoint in checkpoints]
        return sum(rows + (load if rows and away else 0) for rows, away in missing)
