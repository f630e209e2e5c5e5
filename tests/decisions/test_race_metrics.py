"""Metrics that are no mean of scores, raced from the first to the last checkpoint."""

from __future__ import annotations

import numpy as np
import pytest

from hf_trainplus.decisions.race import Evaluated, LossMetric, StatisticMetric
from hf_trainplus.decisions.replay import ReplayDriver, ReplayTrace, replay
from hf_trainplus.results import ExampleResults
from tests.support.race_traces import synthetic
from tests.support.races import run_race


def f1_of(means):
    return 2 * means[0] / (means[1] + means[2])


F1 = StatisticMetric("f1", f1_of, greater_is_better=True)


class F1Driver(ReplayDriver):
    """Gives true positives, predicted and real positives of each row."""

    def __init__(self, trace, seed):
        super().__init__(trace)
        self.truth = (np.random.default_rng(seed).random(trace.size) < 0.3) * 1.0

    def statistics(self, index):
        predicted = np.where(self.trace.correct[index] == 1, self.truth, 1 - self.truth)
        return np.column_stack([predicted * self.truth, predicted, self.truth])

    def evaluate(self, command):
        found = super().evaluate(command).results
        statistics = {"f1": self.statistics(command.checkpoint)[command.rows]}
        return Evaluated(ExampleResults(found.index, found.loss_sum, found.target_count, statistics=statistics))


@pytest.mark.parametrize("seed", range(4))
def test_f1_is_raced_by_the_delta_method(seed):
    trace = synthetic(seed, evaluations=25, rows=1500)
    driver = F1Driver(trace, seed)
    exact = [f1_of(driver.statistics(index).mean(axis=0)) for index in range(25)]
    run = run_race(trace, F1, driver=driver, seed=seed)
    assert run.final.best == int(np.argmax(exact))
    assert run.final.value == pytest.approx(max(exact))
    assert run.race.cost < 0.95
    assert any(record.basis == "bound" for record in run.records)


@pytest.mark.parametrize("seed", range(4))
def test_token_losses_find_the_best_of_the_ratio_of_sums(seed):
    trace = synthetic(seed, evaluations=30, rows=1200)
    counts = np.random.default_rng(seed).integers(1, 40, 1200).astype(float)
    tokens = ReplayTrace(trace.loss * counts, trace.step, target_count=counts)
    levels = (trace.loss * counts).sum(axis=1) / counts.sum()
    np.testing.assert_allclose(tokens.values("loss"), levels)
    result = replay(tokens, "race")
    assert result.best_index == int(levels.argmin())
    assert result.cost < 0.6


def test_rows_without_targets_change_nothing():
    trace = synthetic(0, evaluations=20, rows=900)
    counts = np.ones(900)
    counts[::7] = 0.0
    loss = np.where(counts > 0, trace.loss, np.nan)
    run = run_race(ReplayTrace(loss, trace.step, target_count=counts))
    levels = trace.loss[:, counts > 0].mean(axis=1)
    assert run.final.best == int(levels.argmin())
    assert run.final.value == pytest.approx(levels.min())


def test_a_loss_that_can_be_negative_is_not_bounded_below():
    trace = synthetic(1, evaluations=20, rows=900)
    shifted = ReplayTrace(trace.loss - 5.0, trace.step)
    run = run_race(shifted, LossMetric(lower=-np.inf))
    assert run.final.best == int(trace.values("loss").argmin())
    assert "certain" not in {record.basis for record in run.records}


def test_gradients_are_those_of_the_function():
    metric = StatisticMetric("f1", f1_of, greater_is_better=True)
    means = np.array([0.2, 0.3, 0.35])
    numeric = metric.gradient(means)
    exact = np.array([2 / 0.65, -0.4 / 0.65**2, -0.4 / 0.65**2])
    np.testing.assert_allclose(numeric, exact, rtol=1e-6)
    loss = LossMetric()
    np.testing.assert_allclose(loss.gradient(np.array([3.0, 2.0])), [0.5, -0.75])
    assert np.isnan(loss.value(np.array([0.0, 0.0])))
