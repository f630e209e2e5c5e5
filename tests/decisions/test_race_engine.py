from __future__ import annotations

import numpy as np
import pytest

from hf_trainplus.decisions.race import Evaluated, Race, RaceConfig, drive
from hf_trainplus.decisions.replay import ReplayDriver
from tests.support.race_traces import recorded, synthetic


def run(trace, metric="loss", **options):
    driver = ReplayDriver(trace)
    race = Race(trace.metric(metric), trace.size, RaceConfig(**options))
    for index in range(len(trace.step)):
        if drive(race.observe(index), driver).stop:
            break
    return race, driver, drive(race.finish(), driver), index


@pytest.mark.parametrize("metric", ["loss", "error"])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_checkpoint_is_that_of_full_evaluation(metric, seed):
    trace = synthetic(seed)
    race, driver, verdict, _ = run(trace, metric, seed=seed)
    levels = trace.values(metric)
    assert verdict.best == int(levels.argmin())
    assert verdict.exact
    assert verdict.value == pytest.approx(levels.min(), abs=1e-12)


@pytest.mark.parametrize("metric", ["loss", "error"])
def test_no_pair_is_evaluated_twice_and_the_cost_counts_every_pair(metric):
    trace = synthetic(1)
    race, driver, _, _ = run(trace, metric)
    for parts in driver.pairs.values():
        rows = np.concatenate(parts)
        assert len(np.unique(rows)) == len(rows) <= trace.size
    pairs = sum(len(rows) for parts in driver.pairs.values() for rows in parts)
    assert pairs == race.state.pairs
    assert race.cost == pairs / (len(trace.step) * trace.size) <= 1.0


@pytest.mark.parametrize("name", ["trec6_s0", "ag_news_s0", "cola_s0"])
@pytest.mark.parametrize("metric", ["loss", "error"])
def test_recorded_runs_keep_stocks_best(name, metric):
    trace = recorded(name)
    _, _, verdict, _ = run(trace, metric)
    assert verdict.best == int(trace.values(metric).argmin())


@pytest.mark.parametrize("patience", [3, 8])
def test_patience_stops_where_a_counter_over_exact_levels_stops(patience):
    trace = synthetic(2, evaluations=60)
    levels = trace.values("loss")
    expected = next(t for t in range(60) if t - int(levels[: t + 1].argmin()) >= patience)
    _, _, verdict, stopped = run(trace, patience=patience)
    assert stopped == expected
    assert verdict.best == int(levels[: expected + 1].argmin())


def test_a_checkpoint_with_a_nonfinite_row_is_never_best():
    trace = synthetic(3)
    trace.loss[np.argmin(trace.values("loss")), :] = np.nan
    _, _, verdict, _ = run(trace)
    assert verdict.best == int(np.nanargmin(trace.values("loss")))


def test_candidates_kept_never_exceed_the_limit():
    _, driver, _, _ = run(synthetic(4), "error", max_candidates=3)
    assert 1 <= driver.most_kept <= 3


def test_rows_that_were_not_asked_for_are_refused():
    trace = synthetic(5)
    race = Race(trace.metric("loss"), trace.size)
    steps = race.observe(0)
    command = next(steps)
    with pytest.raises(ValueError, match="answer exactly the rows asked for"):
        steps.send(Evaluated(trace.results(0, command.rows[:-1])))
    assert race.candidates == ()


def test_checkpoints_must_rise():
    trace = synthetic(5)
    race = Race(trace.metric("loss"), trace.size)
    drive(race.observe(3), ReplayDriver(trace))
    with pytest.raises(ValueError, match="rising order"):
        race.observe(3)
