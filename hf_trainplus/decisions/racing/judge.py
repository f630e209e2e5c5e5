"""Who of two checkpoints is out, and on what ground."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hf_trainplus.decisions.racing.certain import certain_range
from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.config import RaceConfig
from hf_trainplus.decisions.racing.metrics import AdditiveMetric, LossMetric
from hf_trainplus.decisions.racing.opaque import LEAST_BOUND, LEAST_SHARE, OpaqueMetric, jackknife_difference
from hf_trainplus.decisions.racing.paired import PairedDifference, paired_difference
from hf_trainplus.decisions.racing.records import Basis
from hf_trainplus.decisions.racing.samples import Samples
from hf_trainplus.decisions.racing.state import RaceState
from hf_trainplus.decisions.racing.tolerance import full_set_se, unseen_regret
from hf_trainplus.results import Int64Array

_EARLY = 0.12

RaceMetric = AdditiveMetric | OpaqueMetric


@dataclass(frozen=True)
class Judgement:
    """Outcome of one comparison.

    Args:
        loser: checkpoint that is out, None while the comparison is open.
        basis: the ground.
        depth: rows of the design's order that both hold.
        difference: how much worse the newer one is; None when the verdict needed no estimate.
        regret: upper bound of what the metric loses by dropping the loser, in its units, oriented so that positive is
            a loss; None while open.
    """

    loser: int | None
    basis: Basis
    depth: int
    difference: PairedDifference | None
    regret: float | None = None


class Judge:
    """Compares checkpoints by their rows; it remembers estimates until the state that they rest on changes.

    Args:
        metric: what is compared.
        config: bound, tolerance and least number of discordant rows.
        looks: depths at which a difference may be judged by its standard error.
    """

    def __init__(self, metric: RaceMetric, config: RaceConfig, looks: Int64Array) -> None:
        self.metric = metric
        self.config = config
        self.looks = looks
        self._known: dict[tuple[object, ...], PairedDifference] = {}
        self._full_set_se: tuple[tuple[int, ...], float] = ((-1,), 0.0)
        self.samples = Samples()

    @property
    def bound(self) -> float:
        """Standard errors that settle a comparison."""
        return max(self.config.bound, LEAST_BOUND) if isinstance(self.metric, OpaqueMetric) else self.config.bound

    def bound_at(self, share: float) -> float:
        """Standard errors that settle a comparison after this share of the rows.

        Every pair meets the first looks and few meet the later ones, so early looks take less of the chance of error;
        with a tolerance a wrong sign within it does no harm.
        """
        early = 0.0 if self.config.tolerance > 0 else _EARLY
        return self.bound * (1.0 + early * (1.0 - share) ** 2)

    def forget(self) -> None:
        """Forget remembered estimates, when a call of the race begins or the design changes."""
        self._known.clear()

    def compare(self, state: RaceState, older: int, newer: int) -> Judgement:
        """Compare two open checkpoints at the depth that both have read.

        A tie goes to the older one, as in stock, which replaces its best on strict improvement only.
        """
        depth = min(state.depth[older], state.depth[newer])
        certain = self._certain(state, older, newer, depth)
        if certain is not None:
            return certain
        if not self.may_judge(state, depth):
            return Judgement(None, "open", depth, None)
        return self._estimated(state, older, newer, depth)

    def _estimated(self, state: RaceState, older: int, newer: int, depth: int) -> Judgement:
        found = self.difference(state, older, newer)
        if not np.isfinite(found.value):
            return Judgement(None, "open", depth, found)
        loser, kept = (newer, older) if found.value >= 0 else (older, newer)
        enough = found.discordant >= self.config.min_discordant and found.se > 0
        regret = found.margin(self.bound_at(depth / state.size)) - abs(found.value) if enough else np.inf
        if regret < 0:
            return Judgement(loser, "bound", depth, found, regret)
        slack = self.slack(state, older, newer)
        if slack > 0:
            first, second = state.columns[kept], state.columns[loser]
            regret = min(regret, unseen_regret(first, second, state.design, depth, self.metric))
            if regret <= slack:
                return Judgement(loser, "tolerance", depth, found, regret)
        return Judgement(None, "open", depth, found)

    def slack(self, state: RaceState, older: int, newer: int) -> float:
        """Regret, in units of the metric, that dropping either of the two may still take on."""
        if self.config.tolerance == 0:
            return 0.0
        debts = [item.debt for item in state.candidates if item.checkpoint in (older, newer)]
        key = tuple(state.references)
        if self._full_set_se[0] != key:
            self._full_set_se = (key, full_set_se(state, self.metric))
        return max(self.config.tolerance * self._full_set_se[1] - max(debts, default=0.0), 0.0)

    def difference(self, state: RaceState, older: int, newer: int, *, at: float = 0.0) -> PairedDifference:
        """Estimate how much worse the newer one is, at the depth that both have read.

        Args:
            state: holds the rows.
            older: any checkpoint.
            newer: any other.
            at: difference that it is to be told from.
        """
        depth = min(state.depth[older], state.depth[newer])
        key = (older, newer, at, depth, state.full(older), state.full(newer), state.design.number, *state.references)
        if key not in self._known:
            first, second = state.columns[newer], state.columns[older]
            if isinstance(self.metric, OpaqueMetric):
                self._known[key] = jackknife_difference(first, second, state.design, depth, self.metric)
            else:
                adjusted = self.may_judge(state, depth)  # between looks an estimate only guides the plan
                sample, regression = self.samples.get(state, self.metric, depth, adjusted=adjusted)
                self._known[key] = paired_difference(first, second, sample, self.metric, regression, at=at)
        return self._known[key]

    def evidence(self, state: RaceState, older: int, newer: int) -> tuple[object, ...]:
        """Return what a comparison rests on; the same evidence again cannot settle what it left open."""
        depth = min(state.depth[older], state.depth[newer])
        slack = self.slack(state, older, newer)
        return older, newer, depth, state.full(older), state.full(newer), state.design.number, slack, *state.references

    def may_judge(self, state: RaceState, depth: int) -> bool:
        """True where a look was planned, so that looking more often cannot raise the chance of a wrong verdict."""
        deep = not isinstance(self.metric, OpaqueMetric) or depth >= LEAST_SHARE * state.size
        return depth > 0 and deep and bool(depth in self.looks or depth == state.design.milestone)

    def _defined(self, column: Column) -> bool:
        if isinstance(self.metric, OpaqueMetric):
            return bool(np.isfinite(self.metric.function(np.arange(len(column.values)), column.values)))
        return bool(np.isfinite(self.metric.value(column.means)))

    def _certain(self, state: RaceState, older: int, newer: int, depth: int) -> Judgement | None:
        first, second = state.columns[newer], state.columns[older]
        if first.nonfinite or second.nonfinite:
            return Judgement(newer if first.nonfinite else older, "nonfinite", depth, None, 0.0)
        if depth == state.size:
            found = self.difference(state, older, newer)
            # stock's best is replaced by any number while it is none, and by a better one only afterwards
            worse = found.value < 0 or (np.isnan(found.value) and not self._defined(second) and self._defined(first))
            return Judgement(older if worse else newer, "exact", depth, found, -abs(found.value))
        if isinstance(self.metric, OpaqueMetric) or not (state.full(older) or state.full(newer)):
            return None
        low, high = certain_range(first, second, self.metric)
        known = first if state.full(newer) else second
        unit = state.size * (float(known.means[1]) if isinstance(self.metric, LossMetric) else 1.0)
        slack = self.slack(state, older, newer)
        if low >= 0 or (slack > 0 and -low / unit <= slack):
            return Judgement(newer, "certain" if low >= 0 else "tolerance", depth, None, -low / unit)
        if high < 0 or (slack > 0 and high / unit <= slack):
            return Judgement(older, "certain" if high < 0 else "tolerance", depth, None, high / unit)
        return None
