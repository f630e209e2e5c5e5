"""A race is answered from the evaluation cache where an earlier run has evaluated its rows."""

from __future__ import annotations

import numpy as np
import pytest

from hf_trainplus.decisions.race import Evaluate
from hf_trainplus.results import ExampleResults
from hf_trainplus.training.racing.driver import LiveDriver
from hf_trainplus.training.racing.session import RaceLimits
from tests.support.cached_runs import Counter, without_times
from tests.training.test_race import evaluations, finished, make, unmeasured

__all__ = ["unmeasured"]  # the fixture


def raced(folder, cache, mode="race", *, limits=None, **options):
    """Train, and return the trainer and the number of batches that its evaluations ran."""
    counter = Counter()
    options = {"max_steps": 6, "eval_cache": str(cache), "callbacks": [counter], **options}
    if limits is not None:
        options["limits"] = limits
    return finished(make(folder, mode, **options)), counter.batches


def decided(trainer):
    return trainer.state.best_global_step, trainer.state.best_metric, trainer.state.global_step


def values(trainer):
    return [without_times(entry) for entry in evaluations(trainer)]


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("metric", ["loss", "accuracy"])
def test_the_second_race_evaluates_nothing_and_logs_the_same(metric, tmp_path):
    plain, ran = raced(tmp_path / "plain", False, metric=metric, eval_cache=None)
    assert ran > 0
    first, ran_first = raced(tmp_path / "first", tmp_path / "cache", metric=metric)
    assert ran_first == ran
    second, ran_second = raced(tmp_path / "second", tmp_path / "cache", metric=metric)
    assert ran_second == 0
    assert decided(second) == decided(first) == decided(plain)
    assert values(second) == values(first) == values(plain)


def test_full_evaluations_and_races_answer_each_other(tmp_path):
    _, ran = raced(tmp_path / "full", tmp_path / "cache", "full")
    assert ran > 0
    race, ran = raced(tmp_path / "race", tmp_path / "cache")
    assert ran == 0
    other = tmp_path / "other"
    every_row = RaceLimits(min_rows=1000)  # a race that goes to full knows all rows of every candidate
    first, ran = raced(tmp_path / "first", other, limits=every_row)
    assert ran > 0
    full, ran = raced(tmp_path / "again", other, "full")
    assert ran == 0
    assert full.state.best_global_step == first.state.best_global_step == race.state.best_global_step


def test_a_resumed_race_takes_its_candidates_from_the_cache(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 3}
    whole, _ = raced(tmp_path / "run", tmp_path / "cache", **options)
    counter = Counter()
    resumed = make(
        tmp_path / "run", "race", max_steps=6, eval_cache=str(tmp_path / "cache"), callbacks=[counter], **options
    )
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))
    assert decided(resumed) == decided(whole)
    # only candidates that were live before the kill, and must be loaded before they are recognised, are run again
    assert counter.batches <= 2


class FakeCache:
    """Knows the even rows, as an earlier race that read less would have left them."""

    def __init__(self):
        self.kept = []

    def find(self, checkpoint, rows, *, in_model):
        known = rows[rows % 2 == 0]
        return table(known) if len(known) else None

    def keep(self, checkpoint, results):
        self.kept.append((checkpoint, results.index.tolist()))

    def forget_except(self, checkpoints):
        pass


def table(rows):
    return ExampleResults(rows, rows * 1.0, np.ones(len(rows)))


def test_only_unknown_rows_are_run_and_their_time_is_not_taken_for_that_of_all():
    ran, cache, clock = [], FakeCache(), iter(range(100))

    def evaluate(rows):
        ran.append(rows.tolist())
        return table(rows)

    driver = LiveDriver(evaluate, None, cache=cache, clock=lambda: next(clock))
    answer = driver.evaluate(Evaluate(7, np.array([5, 2, 1, 4]), True, "test"))
    assert ran == [[1, 5]]
    assert sorted(answer.results.index.tolist()) == [1, 2, 4, 5]
    assert answer.evaluate_seconds is None
    assert cache.kept == [(7, [1, 5])]
    assert driver.rows_evaluated == 2
    all_known = driver.evaluate(Evaluate(7, np.array([6, 8]), True, "test"))
    assert (all_known.evaluate_seconds, len(ran)) == (0.0, 1)
    fresh = LiveDriver(evaluate, None, clock=lambda: next(clock))
    assert fresh.evaluate(Evaluate(7, np.array([6, 8]), True, "test")).evaluate_seconds > 0


def test_nothing_is_kept_where_the_result_may_differ(tmp_path, caplog):
    trainer = make(tmp_path / "run", "race", max_steps=2, eval_cache=str(tmp_path / "cache"))
    trainer.train_dataset, rows = trainer.train_dataset, trainer.eval_dataset

    class Random:
        def __len__(self):
            return len(rows)

        def __getitem__(self, index):
            return dict(rows[index], labels=int(np.random.default_rng().integers(2)))

    trainer.eval_dataset = Random()
    trainer.train()
    said = [record.message for record in caplog.records if "eval_cache keeps nothing" in record.message]
    assert len(said) == 1
    assert not list((tmp_path / "cache").glob("*"))
