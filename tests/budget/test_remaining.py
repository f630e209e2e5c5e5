"""Time left, from measured steps, evaluations and saves."""

import numpy as np
import pytest

from hf_trainplus.budget.keeping.headroom import Headroom
from hf_trainplus.budget.keeping.measured import Measured
from hf_trainplus.budget.remaining import MEASURED_STEPS, OPEN_STEPS, Rhythm, time_left
from tests.budget.keeping.simulation import Costs, random_costs, simulate


def measured(steps=20, step=2.0, evaluation=10.0, save=4.0):
    costs = Measured()
    for _ in range(steps):
        costs.add("step", {"seconds": step, "tokens": 50})
    costs.add("evaluation", {"seconds": evaluation})
    costs.add("save", {"seconds": save})
    return costs


def test_steps_evaluations_and_saves_to_the_end_add_up():
    left = time_left(measured(), Rhythm(100, evaluate_every=25, save_every=50), step=20)
    assert (left.steps, left.evaluation, left.saving) == (160.0, 40.0, 8.0)
    assert (left.seconds, left.steps_left, left.ends_by, left.measured_steps) == (208.0, 80, "max_steps", 20)


def test_later_stages_are_on_top():
    left = time_left(measured(), Rhythm(100), step=90, later_stages=500.0)
    assert (left.seconds, left.later_stages) == (520.0, 500.0)


def test_a_stage_ends_by_its_own_limit_and_later_ones_follow():
    stage = [Headroom("wall_clock", "seconds", 50.0, 100.0)]
    left = time_left(measured(), Rhythm(OPEN_STEPS), 20, closing=(), stage_rooms=stage, later_stages=300.0)
    assert (left.ends_by, left.later_stages) == ("wall_clock", 300.0)
    assert left.seconds == pytest.approx(300.0 + 50.0, abs=10.0)
    assert left.steps_left < 50


def test_later_stages_take_no_more_than_the_run_may():
    run = [Headroom("gpu_hours", "seconds", 500.0, 3600.0)]
    alone = time_left(measured(), Rhythm(OPEN_STEPS), 20, run)
    left = time_left(measured(), Rhythm(60), 20, run, later_stages=3000.0)
    assert 0 < left.later_stages < 500.0
    assert left.seconds == pytest.approx(alone.seconds)
    assert time_left(measured(), Rhythm(60), 20, run, later_stages=10.0).later_stages == 10.0
    # a limit of the run that ends this stage leaves nothing for the next one
    assert time_left(measured(), Rhythm(OPEN_STEPS), 20, run, later_stages=10.0).later_stages == 0.0


def test_it_says_nothing_before_twenty_steps():
    assert MEASURED_STEPS == 20
    assert time_left(measured(steps=19), Rhythm(100), step=19) is None


def test_nothing_is_left_at_the_end():
    assert time_left(measured(), Rhythm(100, 10, 10), step=100).seconds == 0.0


@pytest.mark.parametrize(
    ("step", "steps_left", "evaluations"),
    [(0, 100, 4), (25, 75, 3), (24, 76, 4), (40, 20, 2), (75, 25, 1), (100, 0, 0)],
)
def test_evaluations_ahead_include_the_last_step(step, steps_left, evaluations):
    assert Rhythm(100, evaluate_every=25).ahead(step, steps_left)["evaluation"] == evaluations


def test_a_tighter_budget_ends_the_run():
    room = Headroom("wall_clock", "seconds", 100.0, 200.0)
    left = time_left(measured(), Rhythm(1000, evaluate_every=500), step=20, rooms=[room])
    assert left.ends_by == "wall_clock"
    assert 85 < left.seconds <= 100
    assert left.evaluation == 10.0
    assert left.saving == 4.0
    assert left.seconds == pytest.approx(left.steps + left.evaluation + left.saving)


def test_a_limit_in_tokens_is_turned_into_steps():
    room = Headroom("tokens", "tokens", 260, 10_000)
    left = time_left(measured(), Rhythm(1000), step=20, rooms=[room], closing=())
    assert (left.ends_by, left.steps_left, left.seconds) == ("tokens", 5, 10.0)


def test_a_wide_budget_does_not_matter():
    room = Headroom("wall_clock", "seconds", 1e6, 2e6)
    assert time_left(measured(), Rhythm(100), step=20, rooms=[room]).ends_by == "max_steps"


def _forecast(keeper, costs, steps):
    from hf_trainplus.budget.meter import Progress

    rhythm = Rhythm(10**9, costs.every, costs.every)
    return keeper.time_left(Progress(steps=steps), rhythm).seconds


def test_after_twenty_measured_steps_of_a_budgeted_run_the_median_error_is_within_one_percent():
    rng = np.random.default_rng(3)
    errors = []
    while len(errors) < 60:
        limit, costs = random_costs(rng)
        costs = Costs(limit / 200, costs.evaluation / 2, costs.save, 50, costs.startup)
        run = simulate(limit, costs, rng, forecast=_forecast)
        if run.seconds_at_20 is not None:
            truth = run.end_seconds - run.seconds_at_20
            errors.append(abs(run.seconds_left_at_20 - truth) / truth)
    assert np.median(errors) <= 0.01


def test_due_in_counts_to_the_next_multiple():
    assert Rhythm(100, 30, 7).due_in(40) == {"evaluation": 20, "save": 2}
    assert Rhythm(100, 30, None).due_in(60) == {"evaluation": 0, "save": None}
