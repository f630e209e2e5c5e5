"""The keeper over whole simulated runs, and over a resume."""

import json

import numpy as np
import pytest

from hf_trainplus.budget.budget import Budget
from hf_trainplus.budget.keeping.keeper import BudgetKeeper
from hf_trainplus.budget.meter import Meter, Progress
from tests.budget.keeping.simulation import Costs, normal_noise, simulate, uniform_noise


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def small_costs(rng):
    """A run of about a hundred steps, so that many fit into a test."""
    limit = 10 ** rng.uniform(1.8, 2.2)
    evaluation, save = limit * 10 ** rng.uniform(-3, -1.3), limit * 10 ** rng.uniform(-3.5, -1.5)
    every = int(rng.integers(5, max(6, int(limit / 4))))
    return limit, Costs(1.0, evaluation, save, every, startup=limit * rng.uniform(0, 0.05))


@pytest.mark.parametrize("noise", [normal_noise, uniform_noise])
def test_no_run_overshoots_and_little_is_left(noise):
    rng = np.random.default_rng(11)
    runs = [simulate(*small_costs(rng), rng, noise) for _ in range(150)]
    assert sum(run.overshoot > 0 for run in runs) == 0
    assert sum(run.unused > run.allowed_unused for run in runs) <= 1
    assert np.median([run.unused / run.limit_seconds for run in runs]) < 0.03
    assert all(run.evaluations >= 1 for run in runs)


def test_without_noise_the_last_boundary_that_fits_is_found():
    run = simulate(100.0, Costs(1.0, 4.0, 2.0, 20), np.random.default_rng(0), noise=lambda rng: 1.0)
    assert run.overshoot == 0.0
    assert run.unused < 6.0


def keeper_at(clock, budget, **options):
    return BudgetKeeper(budget, Meter(clock=clock), margin_seconds=0.0, **options)


def test_a_limit_in_steps_ends_at_that_step():
    keeper = keeper_at(Clock(), Budget(max_steps=3))
    keeper.begin(Progress())
    found = []
    for step in range(1, 4):
        keeper.close("step", Progress(steps=step))
        found.append(keeper.verdict(Progress(steps=step)).limit)
    assert found == [None, None, "max_steps"]


def test_an_evaluation_due_near_the_end_moves_to_the_end():
    clock = Clock()
    keeper = keeper_at(clock, Budget(wall_clock=100))
    keeper.begin(Progress())
    for step in range(1, 41):
        clock.now += 1
        keeper.close("step", Progress(steps=step))
        clock.now += 0.5
        keeper.close("evaluation", Progress(steps=step))
    verdict = keeper.verdict(Progress(steps=40), pending=("evaluation",), closing=("evaluation",))
    assert (verdict.limit, verdict.postpone) == (None, False)
    clock.now = 97.9
    verdict = keeper.verdict(Progress(steps=40), pending=("evaluation",), closing=("evaluation",))
    assert (verdict.limit, verdict.postpone) == (None, True)
    clock.now = 98.9
    verdict = keeper.verdict(Progress(steps=40), pending=("evaluation",), closing=("evaluation",))
    assert (verdict.limit, verdict.postpone) == ("wall_clock", False)


def test_a_deadline_is_a_limit_and_has_no_share():
    clock = Clock()
    keeper = keeper_at(clock, Budget(), deadline_seconds=lambda: 10.0 - clock.now)
    keeper.begin(Progress())
    assert keeper.verdict(Progress()).limit is None
    clock.now = 10.0
    verdict = keeper.verdict(Progress())
    assert (verdict.limit, verdict.share) == ("deadline", None)
    assert keeper.describe("deadline", Progress()) == "0s left"
    clock.now = 110.0
    assert keeper.describe("deadline", Progress()) == "1m40s past it"


def test_expected_costs_are_reserved_until_they_are_measured():
    clock = Clock()
    keeper = keeper_at(clock, Budget(wall_clock=100), expected_seconds={"evaluation": 60.0})
    keeper.begin(Progress())
    clock.now = 1.0
    keeper.close("step", Progress(steps=1))
    assert keeper.verdict(Progress(steps=1)).limit == "wall_clock"
    keeper.close("evaluation", Progress(steps=1))
    clock.now = 2.0
    keeper.close("step", Progress(steps=2))
    assert keeper.measured.mean("evaluation") == 0.0
    assert keeper.verdict(Progress(steps=2)).limit is None


def test_no_limit_never_ends_a_run():
    keeper = keeper_at(Clock(), Budget())
    keeper.begin(Progress())
    verdict = keeper.verdict(Progress(steps=10**9), pending=("evaluation", "save"))
    assert (verdict.limit, verdict.postpone, verdict.probe, verdict.share) == (None, False, (), None)


def test_resume_goes_on_counting_and_keeps_the_share():
    clock = Clock()
    first = keeper_at(clock, Budget(wall_clock=100))
    clock.now = 10.0
    first.begin(Progress())
    for step in range(1, 31):
        clock.now += 1
        first.close("step", Progress(steps=step))
    share = first.verdict(Progress(steps=30), closing=()).share
    saved = json.loads(json.dumps(first.state()))
    assert share == pytest.approx(30 / 90, rel=0.02)
    later = Clock()
    second = keeper_at(later, Budget(wall_clock=100))
    second.restore(saved)
    second.begin(Progress(steps=30))
    assert second.verdict(Progress(steps=30), closing=()).share == pytest.approx(share)
    later.now = 59.0
    assert second.verdict(Progress(steps=30), closing=()).limit == "wall_clock"
    assert second.describe("wall_clock", Progress()) == "wall_clock: 1m39s of 1m40s"


def test_costs_measured_on_other_devices_are_not_carried_over():
    first = keeper_at(Clock(), Budget(wall_clock=100))
    first.begin(Progress())
    first.close("step", Progress(steps=1))
    second = BudgetKeeper(Budget(wall_clock=100), Meter(devices=2, clock=Clock()))
    second.restore(first.state())
    assert second.measured.count("step") == 0


def test_a_limit_in_money_needs_a_price():
    with pytest.raises(ValueError, match="Set usd_per_device_hour=2.5"):
        BudgetKeeper(Budget(usd=5), Meter())


def test_a_margin_is_not_negative():
    with pytest.raises(ValueError, match="margin_seconds=-1; allowed are seconds >= 0"):
        BudgetKeeper(Budget(), Meter(), margin_seconds=-1)
