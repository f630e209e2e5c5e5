"""A race that is killed and resumed takes the decisions, and reads the pairs, of one that was not."""

from __future__ import annotations

import numpy as np
import pytest

from hf_trainplus.decisions.race import LossMetric, Race, RaceConfig, drive, read_state, write_state
from hf_trainplus.decisions.replay import ReplayDriver
from tests.support.race_traces import synthetic
from tests.support.races import run_race


class KilledError(Exception):
    """Stands for SIGKILL: nothing after it runs."""


class MortalDriver(ReplayDriver):
    """Dies before its n-th command; weights that were dropped stay on disk until newer state is saved."""

    def __init__(self, trace, life=None):
        super().__init__(trace)
        self.life = life
        self.condemned = set()
        self.commands = 0

    def _tick(self):
        self.commands += 1
        if self.life is not None and self.commands > self.life:
            raise KilledError

    def evaluate(self, command):
        self._tick()
        return super().evaluate(command)

    def keep(self, command):
        self._tick()
        return super().keep(command)

    def drop(self, command):
        self._tick()
        self.condemned.add(command.checkpoint)

    def state_is_safe(self, needed):
        """Delete what was dropped, now that the state that no longer needs it is on disk."""
        self.kept -= self.condemned
        self.condemned.clear()
        assert needed <= self.kept


def race_on(trace, metric, config):
    return Race(trace.metric(metric), trace.size, config, fingerprint="set-1")


def train(trace, metric, config, path, driver, *, save_every=1):
    """Observe from where the saved state ends; return the race and its last verdict."""
    race = race_on(trace, metric, config)
    start = index = 0
    if path.exists():
        saved = read_state(path)
        race.load_state_dict(saved)
        start = saved["last"] + 1
        index = saved["last"]
    for index in range(start, len(trace.step)):
        stop = drive(race.observe(index), driver).stop
        if index % save_every == 0 or stop:
            write_state(path, race.state_dict())
            driver.state_is_safe(set(race.kept))
        if stop:
            break
    return race, drive(race.finish(live=index), driver), index


def decisions(race, verdict, stopped):
    return verdict.best, verdict.value, stopped, race.state.pairs, race.state.design.number, race.state.references


@pytest.mark.parametrize("metric", ["loss", "error"])
@pytest.mark.parametrize(
    ("options", "save_every"),
    [({}, 1), ({}, 3), ({"patience": 6}, 3), ({"reload": False}, 1), ({"tolerance": 0.5}, 1)],
)
def test_killed_at_twenty_points_and_resumed_equals_uninterrupted(tmp_path, metric, options, save_every):
    trace = synthetic(2, evaluations=14, rows=600)
    config = RaceConfig(seed=1, **options)
    whole_driver = MortalDriver(trace)
    whole = decisions(*train(trace, metric, config, tmp_path / "whole.npz", whole_driver, save_every=save_every))
    for life in np.linspace(1, whole_driver.commands - 1, 20).astype(int):
        path = tmp_path / f"{life}.npz"
        driver = MortalDriver(trace, life)
        with pytest.raises(KilledError):
            train(trace, metric, config, path, driver, save_every=save_every)
        driver.life = None
        assert decisions(*train(trace, metric, config, path, driver, save_every=save_every)) == whole


def test_saved_state_is_the_state(tmp_path):
    trace = synthetic(3, evaluations=25, rows=700)
    run = run_race(trace, "error")
    write_state(tmp_path / "race.npz", run.race.state_dict())
    again = Race(trace.metric("error"), trace.size)
    again.load_state_dict(read_state(tmp_path / "race.npz"))
    first, second = run.race.state, again.state
    assert second.candidates == first.candidates
    assert second.depth == first.depth
    assert second.costs == first.costs
    for key, column in first.columns.items():
        np.testing.assert_array_equal(second.columns[key].values, column.values)
        np.testing.assert_array_equal(second.columns[key].loss, column.loss)
        assert second.columns[key].first_sum == column.first_sum
    np.testing.assert_array_equal(second.past.squares, first.past.squares)
    np.testing.assert_array_equal(second.design.order, first.design.order)


def test_state_holds_open_checkpoints_and_references_only():
    run = run_race(synthetic(3, evaluations=40, rows=700), "error")
    state = run.race.state
    assert set(state.columns) == {*state.open, *state.references}
    assert len(state.references) <= 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fingerprint": "set-2"}, "fingerprint='set-1'"),
        ({"size": 701}, "rows_total=700"),
        ({"metric": LossMetric(name="perplexity")}, "metric='loss'"),
        ({"config": RaceConfig(seed=5)}, "seed=0"),
    ],
)
def test_a_state_of_another_set_metric_or_seed_is_refused(change, message):
    trace = synthetic(3, evaluations=3, rows=700)
    race = race_on(trace, "loss", RaceConfig())
    drive(race.observe(0), ReplayDriver(trace))
    options = {"metric": LossMetric(), "size": 700, "config": RaceConfig(), "fingerprint": "set-1"} | change
    other = Race(options["metric"], options["size"], options["config"], fingerprint=options["fingerprint"])
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(race.state_dict())


def test_another_format_is_refused():
    trace = synthetic(3, evaluations=3, rows=700)
    race = race_on(trace, "loss", RaceConfig())
    with pytest.raises(ValueError, match="format=99"):
        race.load_state_dict(race.state_dict() | {"format": 99})


@pytest.mark.parametrize("way", ["error", "close"])
def test_an_operation_that_is_left_puts_the_race_back_and_keeps_the_rows(way):
    trace = synthetic(4, evaluations=10, rows=700)
    whole = run_race(trace, "error")
    driver, race = ReplayDriver(trace), Race(trace.metric("error"), trace.size)
    for index in range(len(trace.step)):
        before = (race.candidates, race.state.observations, dict(race.state.depth))
        steps = race.observe(index)
        command = next(steps)
        steps.send(driver.evaluate(command)) if command.rows.size else None
        if way == "close":
            steps.close()
        else:
            with pytest.raises(KilledError):
                steps.throw(KilledError())
        assert (race.candidates, race.state.observations, dict(race.state.depth)) == before
        # the same observation again asks only for what is still missing, and ends as if nothing had happened
        verdict = drive(race.observe(index), driver)
        assert verdict.candidates == whole.verdicts[index].candidates
    assert drive(race.finish(live=index), driver).best == whole.final.best
    assert race.state.pairs == whole.race.state.pairs
