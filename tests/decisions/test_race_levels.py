from __future__ import annotations

import numpy as np
import pytest

from hf_trainplus.decisions.race import Race, RaceConfig, drive
from hf_trainplus.decisions.replay import ReplayDriver, ReplayTrace
from tests.support.race_traces import synthetic


@pytest.mark.parametrize("metric", ["loss", "error"])
@pytest.mark.parametrize("seed", range(4))
def test_the_first_step_that_reaches_a_level_is_that_of_full_evaluation(metric, seed):
    trace = synthetic(seed, rows=2000)
    levels = trace.values(metric)
    wanted = float(np.quantile(levels, 0.4))
    driver, race = ReplayDriver(trace), Race(trace.metric(metric), trace.size, RaceConfig(seed=seed))
    reached = []
    for index in range(len(levels)):
        (verdict,) = drive(race.observe(index, levels=[wanted]), driver).levels
        reached.append(verdict.reached)
    assert reached == (levels <= wanted).tolist()
    assert race.cost < 0.9


def test_a_clear_level_costs_little_and_a_close_one_is_exact():
    trace = synthetic(1, rows=2000)
    levels = trace.values("loss")
    driver, race = ReplayDriver(trace), Race(trace.metric("loss"), 2000)
    far = drive(race.observe(0, levels=[levels[0] / 2]), driver)
    assert (far.levels[0].reached, far.levels[0].exact) == (False, False)
    assert far.rows < 500
    near = drive(race.observe(1, levels=[levels[1] + 1e-9, levels[1] - 1e-9]), driver)
    assert [verdict.reached for verdict in near.levels] == [True, False]
    assert all(verdict.exact and verdict.se == 0 for verdict in near.levels)
    assert near.levels[0].value == pytest.approx(levels[1])


def test_a_level_is_known_even_when_the_checkpoint_lost():
    trace = synthetic(1, rows=2000, overfit=1.0)
    levels = trace.values("loss")
    driver, race = ReplayDriver(trace), Race(trace.metric("loss"), 2000)
    for index in range(len(levels) - 1):
        drive(race.observe(index), driver)
    last = len(levels) - 1
    verdict = drive(race.observe(last, levels=[levels[last] * 1.001]), driver)
    assert last not in verdict.candidates
    assert verdict.levels[0].reached


def test_a_nonfinite_checkpoint_reaches_no_level():
    trace = ReplayTrace(np.full((1, 600), np.nan), np.array([1]))
    verdict = drive(Race(trace.metric("loss"), 600).observe(0, levels=[1e9]), ReplayDriver(trace))
    assert (verdict.levels[0].reached, verdict.levels[0].value) == (False, None)


@pytest.mark.parametrize(("metric", "least"), [("loss", 0.92), ("error", 0.87)])
def test_reported_levels_cover_the_exact_ones(metric, least):
    """Nominal 95 %; reading stops when a comparison is decided, which costs a 0/1 score some coverage."""
    hits = []
    for seed in range(60):
        trace = synthetic(seed, evaluations=12, rows=800)
        levels = trace.values(metric)
        driver, race = ReplayDriver(trace), Race(trace.metric(metric), 800, RaceConfig(seed=seed))
        for index in range(len(levels)):
            verdict = drive(race.observe(index), driver)
            if verdict.exact:
                assert verdict.value == pytest.approx(levels[index], abs=1e-12)
            elif index in (2, 8, 10, 11):  # rows are shared between evaluations, so neighbours say the same
                hits.append(abs(verdict.value - levels[index]) <= 1.96 * verdict.se)
    assert len(hits) > 150
    assert np.mean(hits) >= least


def test_a_level_survives_a_new_order_of_reading():
    # the single best is often fully known, so the order is drawn anew again and again
    trace = synthetic(1, rows=1500)
    levels = trace.values("error")
    driver, race = ReplayDriver(trace), Race(trace.metric("error"), 1500, RaceConfig(max_candidates=2))
    seen = set()
    for index in range(len(levels)):
        verdict = drive(race.observe(index), driver)
        seen.add(race.state.design.number)
        assert verdict.exact or verdict.se > 0
        assert abs(verdict.value - levels[index]) <= 5 * verdict.se + 1e-12
    assert len(seen) > 5
