"""Improvement over the best before, judged on the rows that both have, in races and on subsets."""

import json

import numpy as np
import pytest

from hf_trainplus.decisions.race import LossMetric, Race, RaceConfig, drive
from hf_trainplus.decisions.replay import ReplayDriver
from hf_trainplus.decisions.subset import Subset
from hf_trainplus.results import ExampleResults
from hf_trainplus.training.gains import SubsetGains, log_gain, raced_gain
from tests.support.race_traces import synthetic
from tests.training.test_race import evaluations, finished, make

ROWS, TOTAL = 200, 2000


def results(losses, scores=None):
    return ExampleResults(np.arange(len(losses)), losses, np.ones(len(losses)), scores=scores or {})


def subset():
    return Subset(np.arange(ROWS), np.full(ROWS, TOTAL / ROWS), np.zeros(ROWS, np.int64))


def test_the_interval_is_that_of_the_paired_difference_to_the_best():
    rng = np.random.default_rng(0)
    hard = rng.exponential(size=ROWS) * 5  # what rows have in common is far larger than what changes
    gains = SubsetGains("loss", greater_is_better=False)
    assert gains.enter(1.0, results(hard + 1.0), subset(), 0.95) == (None, None)
    low, high = gains.enter(0.9, results(hard + 0.9 + 0.01 * rng.normal(size=ROWS)), subset(), 0.95)
    assert 0.09 < low < 0.1 < high < 0.11
    low, high = gains.enter(2.0, results(hard + 1.9 + 0.01 * rng.normal(size=ROWS)), subset(), 0.95)
    assert -1.01 < low < -1.0 < high < -0.99
    low, high = gains.enter(0.8, results(hard + 0.8 + 0.01 * rng.normal(size=ROWS)), subset(), 0.95)
    assert 0.09 < low < high < 0.11  # against the best before, not the last


@pytest.mark.parametrize("greater", [True, False])
def test_positive_is_better_in_either_direction(greater):
    rng = np.random.default_rng(1)
    before, after = (rng.random(ROWS) < 0.4) * 1.0, np.ones(ROWS)
    gains = SubsetGains("accuracy", greater_is_better=greater)
    gains.enter(before.mean(), results(before, {"accuracy": before}), subset(), 0.95)
    low, high = gains.enter(1.0, results(before, {"accuracy": after}), subset(), 0.95)
    assert (low > 0.4) if greater else (high < -0.4)


def test_a_resumed_run_compares_with_the_same_rows():
    rng = np.random.default_rng(2)
    tables = [results(rng.random(ROWS)) for _ in range(2)]
    gains, resumed = (SubsetGains("loss", greater_is_better=False) for _ in range(2))
    gains.enter(0.5, tables[0], subset(), 0.95)
    resumed.load_state_dict(gains.state_dict())
    assert resumed.enter(0.4, tables[1], subset(), 0.95) == gains.enter(0.4, tables[1], subset(), 0.95)
    assert SubsetGains("loss", greater_is_better=False).state_dict() == {}


def test_a_metric_without_scores_of_rows_has_no_bounds():
    gains = SubsetGains("f1", greater_is_better=True)
    assert [gains.enter(value, results(np.ones(ROWS)), subset(), 0.95) for value in (0.1, 0.2)] == [(None, None)] * 2


def test_a_race_bounds_the_gain_over_its_best_candidate():
    trace = synthetic(3, evaluations=20, rows=4000)
    exact = trace.values("loss")
    race, driver = Race(LossMetric(), trace.size, RaceConfig()), ReplayDriver(trace)
    covered, known = 0, 0
    for index in range(20):
        low, high = raced_gain(drive(race.observe(index), driver), 0.95)
        if low is None or high is None:
            assert index == 0
            continue
        known += 1
        covered += low <= exact[:index].min() - exact[index] <= high
    assert known == 19
    assert covered >= 15


def test_bounds_that_are_not_known_are_not_logged():
    metrics = {}
    log_gain(metrics, "eval_loss", (None, 0.1))
    assert metrics == {"eval_loss_gain_ci_high": 0.1}


@pytest.mark.parametrize("options", [{}, {"eval_subset_size": 100}], ids=["race", "subset"])
def test_the_adaptive_schedule_is_given_intervals(options, tmp_path):
    adaptive = {"eval_schedule": "adaptive", "eval_strategy": "no", "eval_min_steps": 1, "eval_max_steps": 8}
    mode = "subset" if options else "race"
    trainer = finished(make(tmp_path, mode, max_steps=20, **adaptive, **options))
    entries = evaluations(trainer)
    assert not any("gain" in key for key in entries[0])
    assert all(entry["eval_loss_gain_ci_low"] <= entry["eval_loss_gain_ci_high"] for entry in entries[1:])
    json.dumps(entries, allow_nan=False)
