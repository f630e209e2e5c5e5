"""Metrics of counts where a checkpoint predicts one class only: no slope describes them there, and ties are exact."""

from __future__ import annotations

import numpy as np
import pytest

from hf_trainplus.decisions.race import Evaluated, StatisticMetric
from hf_trainplus.decisions.replay import ReplayDriver, ReplayTrace
from hf_trainplus.evaluation.metrics.registry import load_metric
from hf_trainplus.results import ExampleResults
from hf_trainplus.training.racing.watched import race_metric
from tests.support.races import run_race

ROWS, EVALUATIONS = 600, 20


class CountsDriver(ReplayDriver):
    """A classifier whose threshold wanders: it often predicts one class for all rows, or the other for a few."""

    def __init__(self, metric, seed):
        rng = np.random.default_rng(seed)
        truth = (rng.random(ROWS) < 0.5) * 1
        sharpness = np.linspace(0.0, 1.5, EVALUATIONS)[:, None]
        threshold = rng.choice([-9.0, -2.5, 0.0, 2.5, 9.0], EVALUATIONS, p=[0.3, 0.1, 0.2, 0.1, 0.3])[:, None]
        predicted = (sharpness * (2 * truth - 1) + rng.normal(size=(EVALUATIONS, ROWS)) > threshold).astype(int)
        loss = np.abs(predicted - truth) + 0.1 * rng.random((EVALUATIONS, ROWS))
        super().__init__(ReplayTrace(loss, np.arange(EVALUATIONS)))
        self.name, self.truth = metric.primary, truth
        self.statistics = [metric.example_statistics(row, truth) for row in predicted]
        self.exact = [float(metric.primary_from_totals(rows.sum(axis=0))) for rows in self.statistics]

    def evaluate(self, command):
        found = super().evaluate(command).results
        statistics = {self.name: self.statistics[command.checkpoint][command.rows]}
        return Evaluated(ExampleResults(found.index, found.loss_sum, found.target_count, statistics=statistics))


@pytest.mark.parametrize("name", ["matthews_correlation", "precision", "f1", "recall"])
def test_the_first_best_is_found_where_classes_are_never_predicted(name):
    metric = load_metric(name, num_labels=2)
    raced = race_metric(name, [metric], greater_is_better=True, rows=ROWS)
    assert isinstance(raced, StatisticMetric)
    found, wanted = [], []
    for seed in range(8):
        driver = CountsDriver(metric, seed)
        run = run_race(driver.trace, raced, driver=driver, labels=driver.truth, seed=seed)
        found.append((run.final.best, run.final.value))
        wanted.append((int(np.argmax(driver.exact)), max(driver.exact)))
        assert all(abs(verdict.value) < 1.5 for verdict in run.verdicts)  # levels that are estimates stay near
    assert found == wanted


def test_a_metric_that_is_flat_in_the_sample_is_not_settled_by_its_slope():
    metric = load_metric("precision", num_labels=2)
    truth = np.arange(ROWS) % 2
    rare = np.where(np.arange(ROWS) % 300 == 1, 1, 0)  # two positive predictions, both right: precision 1
    half = np.ones(ROWS, int)
    driver = CountsDriver(metric, 0)
    driver.statistics = [metric.example_statistics(row, truth) for row in (half, rare)]
    raced = race_metric("precision", [metric], greater_is_better=True, rows=ROWS)
    trace = ReplayTrace(driver.trace.loss[:2], np.arange(2))
    driver.trace = trace
    for seed in range(10):
        assert run_race(trace, raced, driver=driver, seed=seed).final.best == 1


def test_equal_counts_tie_whatever_the_number_of_rows():
    metric = load_metric("f1", num_labels=2)
    for rows in (399, 401, 7600):
        raced = race_metric("f1", [metric], greater_is_better=True, rows=rows)
        sums = np.array([120.0, 151.0, 160.0, 170.0, 201.0, 199.0])
        assert raced.value(sums / rows) == float(metric.primary_from_totals(sums))


@pytest.mark.parametrize("undefined", [0, 1], ids=["older", "newer"])
def test_a_value_that_is_not_defined_loses_to_any_number(undefined):
    metric = load_metric("f1", num_labels=2)
    driver = CountsDriver(metric, 0)
    driver.statistics = driver.statistics[:2]
    driver.statistics[undefined] = np.zeros_like(driver.statistics[undefined])
    raced = StatisticMetric("f1", lambda means: means[0] / means.sum() if means.sum() else float("nan"), True)
    driver.trace = ReplayTrace(driver.trace.loss[:2], np.arange(2))
    assert run_race(driver.trace, raced, driver=driver).final.best == 1 - undefined
