"""A small version of the live benchmark: a real training on AG News, raced and evaluated by the stock Trainer."""

import json
from dataclasses import replace

import pytest

from hf_trainplus.training.racing.session import RaceLimits
from tests.benchmarks import live_race
from tests.benchmarks.live_runs import DATA, News, Setting, Stopwatch, train

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the AG News data")
SMALL = Setting(
    evaluations=5, train_rows=300, eval_rows=400, eval_steps=4, train_batch=16, learning_rate=3e-3, width=64
)


@pytest.fixture(scope="module")
def news():
    return News.read(SMALL)


def race_small_sets(trainer):
    trainer._scheduled.race.limits = RaceLimits(min_rows=100, min_seconds=0.0)


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["loss", "accuracy"])
def test_a_race_trains_to_stocks_weights_from_fewer_rows(name, news):
    row = live_race.compare(name, live_race.CASES[name], news, SMALL, with_full=True, prepare=race_small_sets)
    assert row.full.best_step == row.stock.best_step == row.race.best_step
    assert row.race.weights == row.stock.weights == row.full.weights
    assert row.race.stop_step == row.stock.stop_step == 20
    assert row.race.rows < row.stock.rows == 5 * 400
    assert row.race.best_value == pytest.approx(row.full.best_value, abs=1e-6)
    assert 0 < row.race.cpu_seconds < row.race.train_cpu_seconds
    written = json.loads(live_race.as_json([row], SMALL))["rows"][0]
    assert written["same_best"] is written["same_weights"] is True
    assert live_race.table_of([row]).row_count == 3


@needs_data
@pytest.mark.slow
def test_another_training_is_told_apart(news):
    few = replace(SMALL, evaluations=1)
    first, second = (train("stock", "loss", None, news, setting) for setting in (few, replace(few, seed=1)))
    assert first.weights != second.weights
    assert first.weights == train("stock", "loss", None, news, few).weights


def test_the_stopwatch_counts_the_outermost_call_once():
    class Work:
        def outer(self):
            self.inner()
            return "done"

        def inner(self):
            pass

    wall, cpu = iter([0.0, 10.0, 20.0, 21.0]), iter([0.0, 4.0, 5.0, 5.5])
    watch, work = Stopwatch(lambda: next(wall), lambda: next(cpu)), Work()
    watch.watch(work, "outer", "inner")
    assert work.outer() == "done"
    work.inner()
    assert watch.wall == {"outer": 10.0, "inner": 1.0}
    assert watch.cpu == 4.5


def test_the_stopwatch_stops_when_a_call_fails():
    class Work:
        def fail(self):
            raise OSError("disk full")

    wall = iter([0.0, 3.0, 5.0, 6.0])
    watch, work = Stopwatch(lambda: next(wall), lambda: 0.0), Work()
    watch.watch(work, "fail")
    for _ in range(2):
        with pytest.raises(OSError, match="disk full"):
            work.fail()
    assert watch.wall == {"fail": 4.0}
