from __future__ import annotations

import numpy as np
import pytest

from hf_trainplus.decisions.race import Evaluated, OpaqueMetric, Race, RaceConfig, drive
from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.design import nested_design
from hf_trainplus.decisions.racing.opaque import jackknife_difference
from hf_trainplus.decisions.racing.strata import Strata
from hf_trainplus.decisions.replay import ReplayDriver, ReplayTrace
from hf_trainplus.results import ExampleResults
from tests.support.races import run_race


def auc(rows, payload):
    score, label = payload[:, 0], payload[:, 1] > 0.5
    order = np.argsort(score, kind="stable")
    ranks = np.empty(len(score))
    ranks[order] = np.arange(1, len(score) + 1)
    positives = int(label.sum())
    if positives in (0, len(score)):
        return 0.5
    return (ranks[label].sum() - positives * (positives + 1) / 2) / (positives * (len(score) - positives))


AUC = OpaqueMetric("auc", auc, greater_is_better=True)


def payloads(seed, evaluations=16, rows=1500):
    """Scores that separate the classes better and better, then worse."""
    rng = np.random.default_rng(seed)
    label = (rng.random(rows) < 0.3) * 1.0
    own = rng.normal(size=rows)
    quality = np.concatenate(
        [np.linspace(0.2, 2.0, evaluations // 2), np.linspace(1.9, 1.2, evaluations - evaluations // 2)]
    )
    return [np.column_stack([q * label + own + 0.2 * rng.normal(size=rows), label]) for q in quality]


class PayloadDriver(ReplayDriver):
    def __init__(self, tables):
        super().__init__(ReplayTrace(np.zeros((len(tables), len(tables[0]))), np.arange(1, len(tables) + 1)))
        self.tables = tables

    def evaluate(self, command):
        super().evaluate(command)
        rows = command.rows
        statistics = {"auc": self.tables[command.checkpoint][rows]}
        return Evaluated(ExampleResults(rows, np.zeros(len(rows)), np.ones(len(rows)), statistics=statistics))


@pytest.mark.parametrize("seed", range(3))
def test_an_opaque_metric_finds_its_best(seed):
    tables = payloads(seed)
    driver = PayloadDriver(tables)
    run = run_race(driver.trace, AUC, driver=driver, seed=seed)
    exact = [auc(None, table) for table in tables]
    assert run.final.best == int(np.argmax(exact))
    assert run.final.value == pytest.approx(max(exact))
    assert run.race.cost < 0.9
    settled = [record for record in run.records if record.basis == "bound"]
    assert settled
    assert all(record.bound >= 4.0 and record.depth >= 0.3 * record.rows_total for record in settled)


def test_payload_rows_are_read_at_equal_rates():
    driver = PayloadDriver(payloads(0, evaluations=2))
    race = Race(AUC, 1500, RaceConfig(), labels=np.repeat([0, 1, 2], [900, 450, 150]))
    drive(race.observe(0), driver)
    (first,) = driver.pairs[0]
    shares = np.bincount(np.repeat([0, 1, 2], [900, 450, 150])[first]) / len(first)
    np.testing.assert_allclose(shares, [0.6, 0.3, 0.1], atol=0.02)


def test_grouped_jackknife_covers():
    tables = payloads(1, evaluations=4)
    a, b = tables[1], tables[2]
    true = auc(None, b) - auc(None, a)
    hits = 0
    for seed in range(500):
        design = nested_design(Strata(np.zeros(1500, dtype=np.int64), np.ones(1)), seed=seed, equal_rates=True)
        rows = design.order[:450]
        found = jackknife_difference(column(a, rows), column(b, rows), design, 450, AUC)
        hits += abs(found.value - true) <= 2.093 * found.se
    assert 0.92 <= hits / 500 <= 0.985


def test_every_row_gives_the_exact_difference():
    a, b = payloads(2, evaluations=2)
    design = nested_design(Strata(np.zeros(1500, dtype=np.int64), np.ones(1)), seed=0)
    found = jackknife_difference(column(a, np.arange(1500)), column(b, np.arange(1500)), design, 1500, AUC)
    assert (found.value, found.se) == (pytest.approx(auc(None, b) - auc(None, a)), 0.0)


def test_a_missing_payload_is_named():
    with pytest.raises(ValueError, match="'auc'"):
        AUC.columns(ExampleResults([0], [1.0], [1]))


def column(table, rows):
    found = Column.empty(len(table), 2)
    found.add(ExampleResults(rows, np.zeros(len(rows)), np.ones(len(rows))), table[rows])
    return found
