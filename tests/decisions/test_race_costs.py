from __future__ import annotations

import pytest

from hf_trainplus.decisions.race import Evaluated, Kept
from hf_trainplus.decisions.racing.costs import Costs
from hf_trainplus.decisions.replay import ReplayDriver
from tests.support.race_traces import synthetic
from tests.support.races import run_race


class MeasuredDriver(ReplayDriver):
    """Answers with the seconds that a machine would have taken."""

    def __init__(self, trace, *, row=1e-2, load=1.0, save=1.0):
        super().__init__(trace)
        self.row, self.load, self.save = row, load, save

    def evaluate(self, command):
        results = super().evaluate(command).results
        return Evaluated(results, self.row * len(command.rows), None if command.live else self.load)

    def keep(self, command):
        super().keep(command)
        return Kept(self.save)


@pytest.mark.parametrize("metric", ["loss", "error"])
def test_dear_loading_is_avoided_and_the_decisions_stay(metric):
    trace = synthetic(3, rows=900)
    cheap = run_race(trace, metric, driver=MeasuredDriver(trace, load=0.01, save=0.01))
    dear = run_race(trace, metric, driver=MeasuredDriver(trace, load=60.0, save=60.0))
    assert cheap.final.best == dear.final.best == int(trace.values(metric).argmin())
    assert dear.race.state.reloads < cheap.race.state.reloads
    assert dear.race.state.pairs > cheap.race.state.pairs


def test_load_seconds_are_summed_over_loads_only():
    trace = synthetic(3, rows=900)
    run = run_race(trace, "error", driver=MeasuredDriver(trace, load=2.0))
    assert run.race.state.reloads > 0
    assert run.race.state.reload_seconds == pytest.approx(2.0 * run.race.state.reloads)
    assert run.records[-1].reload_seconds <= run.race.state.reload_seconds


def test_the_least_of_three_measurements_is_kept():
    costs = Costs()
    for seconds in (9.0, 2.0, 3.0, 0.1):
        costs = costs.with_rows(seconds, 100)
    assert costs.row_seconds == 0.02
    assert costs.with_load(None) is costs
    assert Costs().with_rows(0.0, 100).row_seconds is None


def test_ratios_are_rounded_so_that_close_measurements_decide_alike():
    first = Costs(row_seconds=0.0100, load_seconds=1.00, save_seconds=0.5)
    second = Costs(row_seconds=0.0103, load_seconds=1.05, save_seconds=0.45)
    assert first.load_rows == second.load_rows == 128
    assert first.keep_rows == second.keep_rows == 128


def test_what_is_not_measured_is_none():
    assert Costs().load_rows is None
    assert Costs(row_seconds=1.0, load_seconds=1.0).keep_rows is None
    assert Costs(row_seconds=1.0, load_seconds=0.0).load_rows == 0
