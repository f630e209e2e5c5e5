from __future__ import annotations

import numpy as np
import pytest

from hf_trainplus.decisions.race import Race, RaceConfig, drive
from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.design import nested_design
from hf_trainplus.decisions.racing.metrics import LossMetric, ScoreMetric
from hf_trainplus.decisions.racing.strata import Strata
from hf_trainplus.decisions.racing.tolerance import unseen_limit, unseen_regret
from hf_trainplus.decisions.replay import ReplayDriver, ReplayOptions, ReplayTrace, replay
from hf_trainplus.results import ExampleResults
from tests.support.race_traces import recorded, synthetic
from tests.support.races import run_race

ERROR = ScoreMetric("error", greater_is_better=False, lower=0.0, upper=1.0)


@pytest.mark.parametrize("metric", ["loss", "error"])
@pytest.mark.parametrize("tolerance", [0.25, 0.5, 2.0])
def test_regret_stays_within_the_tolerance(metric, tolerance):
    for seed in range(3):
        result = replay(
            synthetic(seed, overfit=0.05, rows=900),
            metric=metric,
            options=ReplayOptions(tolerance=tolerance, seed=seed),
        )
        assert result.regret_se <= tolerance


def test_a_tolerance_saves_rows():
    costs = [
        np.mean(
            [
                replay(synthetic(seed, rows=900), metric="error", options=ReplayOptions(tolerance=kappa)).cost
                for seed in range(3)
            ]
        )
        for kappa in (0.0, 1.0, 4.0)
    ]
    assert costs[0] > costs[1] > costs[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trec6_s0", "cola_s0"])
def test_recorded_runs_stay_within_half_a_standard_error(name):
    for seed in range(2):
        result = replay(recorded(name), metric="error", options=ReplayOptions(tolerance=0.5, seed=seed))
        assert result.regret_se <= 0.5


def test_debts_add_up_along_a_chain_of_drops():
    """A hundred steps, each within the tolerance, must not walk away from the best by a hundred tolerances."""
    rng = np.random.default_rng(0)
    rows, steps = 1500, 60
    base = rng.exponential(0.5, rows)
    # every checkpoint is a little worse than the one before, and noisy enough to hide it
    loss = np.stack([base + 0.004 * t + 0.15 * rng.normal(size=rows) * base for t in range(steps)])
    trace = ReplayTrace(np.maximum(loss, 0.0), np.arange(1, steps + 1))
    for seed in range(4):
        result = replay(trace, options=ReplayOptions(tolerance=0.5, seed=seed))
        assert result.regret_se <= 0.5


def test_debt_never_exceeds_the_tolerance():
    trace = synthetic(1)
    driver, race = ReplayDriver(trace), Race(trace.metric("error"), trace.size, RaceConfig(tolerance=1.0))
    largest = 0.0
    for index in range(len(trace.step)):
        drive(race.observe(index), driver)
        largest = max(largest, *(item.debt for item in race.state.candidates))
        spread = np.sqrt(0.25 / trace.size)  # the largest a 0/1 score can have
        assert all(item.debt <= 1.0 * spread for item in race.state.candidates)
    assert largest > 0


def test_near_ties_name_the_tolerance_that_would_make_them_cheap():
    # most rows are wrong, so that all of them must be read to know that nothing was gained
    right = np.tile(np.random.default_rng(0).random(1200) < 0.2, (12, 1)) * 1.0
    trace = ReplayTrace(np.full((12, 1200), 0.5), np.arange(1, 13), right)
    run = run_race(trace, "error")
    reasons = [verdict.reason for verdict in [*run.verdicts, run.final] if verdict.reason]
    assert any("nearly tie" in reason for reason in reasons)
    named = float(next(reason for reason in reasons if "would settle" in reason).split("eval_tolerance=")[1].split()[0])
    cheaper = run_race(trace, "error", tolerance=named)
    assert cheaper.race.cost < 0.75 * run.race.cost


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8])
@pytest.mark.parametrize("seen", [0, 1, 2, 7, 40])
def test_unseen_limit_is_the_number_at_which_so_few_are_one_in_two_thousand(seen, rate):
    from scipy.stats import binom

    limit = unseen_limit(seen, rate)
    assert binom.cdf(seen, limit, rate) <= 0.0005 < binom.cdf(seen, limit - 1, rate)


def test_nothing_read_bounds_nothing():
    assert unseen_limit(0, 0.0) == np.inf
    assert unseen_limit(3, 1.0) == 4


def partly(values, rows):
    table = ExampleResults(np.arange(len(values)), values, np.ones(len(values)), scores={"error": values}).take(rows)
    column = Column.empty(len(values), 1)
    column.add(table, ERROR.columns(table))
    return column


def test_unseen_gains_are_bounded_but_for_one_chance_in_two_thousand():
    rng = np.random.default_rng(0)
    size, failures, trials = 600, 0, 2000
    design = None
    for trial in range(trials):
        kept = (rng.random(size) < 0.3) * 1.0
        dropped = kept.copy()
        gained = rng.choice(np.flatnonzero(kept == 1), size=8, replace=False)
        dropped[gained] = 0.0
        design = nested_design(Strata(np.zeros(size, dtype=np.int64), np.ones(1)), seed=trial)
        rows = design.order[:300]
        bound = unseen_regret(partly(kept, rows), partly(dropped, rows), design, 300, ERROR)
        failures += bound < kept.mean() - dropped.mean()
    assert failures <= 4


def test_unseen_gains_of_an_unbounded_score_have_no_bound():
    design = nested_design(Strata(np.zeros(10, dtype=np.int64), np.ones(1)), seed=0)
    column = partly(np.zeros(10), np.arange(10))
    assert unseen_regret(column, column, design, 5, LossMetric()) == np.inf
