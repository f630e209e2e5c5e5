"""Who of two checkpoints is out, and on what ground."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hf_trainplus.decisions.racing.certain import certain_range
from hf_trainplus.decisions.racing.config import RaceConfig
from hf_trainplus.decisions.racing.metrics import RaceMetric
from hf_trainplus.decisions.racing.paired import PairedDifference, paired_difference
from hf_trainplus.decisions.racing.records import Basis
from hf_trainplus.decisions.racing.references import covariates_of
from hf_trainplus.decisions.racing.state import Candidate, RaceState


@dataclass(frozen=True)
class Judgement:
    """Outcome of one comparison: the loser's number or None, the ground, and the estimate when one was needed."""

    loser: int | None
    basis: Basis
    depth: int
    difference: PairedDifference | None


def judge(state: RaceState, config: RaceConfig, metric: RaceMetric, older: Candidate, newer: Candidate) -> Judgement:
    """Compare two candidates at the depth that both have read.

    A tie goes to the older one, as in stock, which replaces its best on strict improvement only.

    Args:
        state: holds the rows.
        config: bound and least number of discordant rows.
        metric: what is compared.
        older: candidate that was observed first.
        newer: candidate that was observed later.
    """
    first, second = state.columns[newer.checkpoint], state.columns[older.checkpoint]
    depth = min(older.depth, newer.depth)
    if first.nonfinite or second.nonfinite:
        return Judgement(newer.checkpoint if first.nonfinite else older.checkpoint, "nonfinite", depth, None)
    if depth == state.design.size:
        found = difference_of(state, metric, older, newer)
        return Judgement(newer.checkpoint if found.value >= 0 else older.checkpoint, "exact", depth, found)
    low, high = certain_range(first, second, metric)
    if low >= 0 or high < 0:
        return Judgement(newer.checkpoint if low >= 0 else older.checkpoint, "certain", depth, None)
    found = difference_of(state, metric, older, newer)
    if abs(found.z) > config.bound and found.discordant >= config.min_discordant and np.isfinite(found.value):
        return Judgement(newer.checkpoint if found.value > 0 else older.checkpoint, "bound", depth, found)
    return Judgement(None, "open", depth, found)


def difference_of(state: RaceState, metric: RaceMetric, older: Candidate, newer: Candidate) -> PairedDifference:
    """Estimate how much worse the newer one is, at the depth that both have read."""
    covariates, means = covariates_of(state, metric)
    depth = min(older.depth, newer.depth)
    first, second = state.columns[newer.checkpoint], state.columns[older.checkpoint]
    return paired_difference(first, second, state.design, depth, metric, covariates, means)
