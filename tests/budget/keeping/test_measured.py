"""Measured costs: means and upper bounds, held against numpy and against simulated durations."""

import json

import numpy as np
import pytest

from hf_trainplus.budget.keeping.measured import PRIOR_SPREAD, PRIOR_WEIGHT, Amount, Measured


def test_welford_agrees_with_numpy():
    values = np.random.default_rng(0).gamma(4.0, 2.0, 200)
    amount = Amount()
    for value in values:
        amount.add(value)
    assert amount.mean == pytest.approx(values.mean())
    assert amount.squares == pytest.approx(((values - values.mean()) ** 2).sum())
    assert (amount.count, amount.largest) == (200, values.max())


def test_with_many_measurements_the_scatter_is_the_measured_one():
    values = np.random.default_rng(1).normal(10.0, 0.5, 2000)
    amount = Amount()
    for value in values:
        amount.add(value)
    assert np.sqrt(amount.variance_of_next()) == pytest.approx(values.std(ddof=1), rel=0.05)


def test_with_one_measurement_the_scatter_is_the_prior_with_the_means_own_uncertainty():
    amount = Amount()
    amount.add(10.0)
    assert amount.variance_of_next() == pytest.approx((PRIOR_SPREAD * 10.0) ** 2 * 2)
    assert PRIOR_WEIGHT > 1


@pytest.mark.parametrize(("measurements", "most_misses"), [(1, 0.05), (3, 0.01), (20, 0.003)])
def test_the_upper_bound_covers_the_next_duration(measurements, most_misses):
    rng = np.random.default_rng(measurements)
    trials, misses = 4000, 0
    for _ in range(trials):
        measured = Measured()
        for value in 1 + 0.2 * rng.standard_normal(measurements):
            measured.add("evaluation", {"seconds": float(value)})
        misses += 1 + 0.2 * rng.standard_normal() > measured.upper(["evaluation"], "seconds", deviations=3.3)
    assert misses <= most_misses * trials


def test_independent_phases_add_their_variances():
    measured = Measured()
    for phase in ("step", "evaluation"):
        measured.add(phase, {"seconds": 10.0})
    single = measured.upper(["step"], "seconds", deviations=3.0) - 10.0
    assert measured.upper(["step", "evaluation"], "seconds", deviations=3.0) == pytest.approx(20 + single * np.sqrt(2))


def test_counted_quantities_take_the_dearest_step_and_no_margin():
    measured = Measured()
    for tokens in (100, 300, 200):
        measured.add("step", {"tokens": tokens})
    assert measured.upper(["step", "step"], "tokens", deviations=100.0) == 600


def test_what_was_never_measured_is_none_and_reserves_nothing():
    measured = Measured()
    assert measured.mean("save") is None
    assert measured.count("save") == 0
    assert measured.upper(["save"], "seconds") == 0.0


def test_it_survives_a_checkpoint():
    measured = Measured()
    for seconds in (1.0, 1.5, 0.75):
        measured.add("step", {"seconds": seconds, "energy_kwh": seconds / 100})
    measured.add("save", {"seconds": 4.0})
    again = Measured.from_state(json.loads(json.dumps(measured.state())))
    assert again == measured


def test_a_phase_can_be_forgotten():
    measured = Measured()
    measured.add("step", {"seconds": 100.0})
    measured.forget("step")
    measured.forget("save")
    measured.add("step", {"seconds": 1.0})
    assert measured.mean("step") == 1.0
