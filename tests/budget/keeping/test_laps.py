"""What lies between two marks is one phase."""

import pytest

from hf_trainplus.budget.keeping.laps import Laps, quantities
from hf_trainplus.budget.keeping.measured import Measured
from hf_trainplus.budget.meter import Progress, Reading


def at(seconds, steps=0, tokens=None, energy=None):
    return Reading(Progress(steps=steps, tokens=tokens), seconds, seconds / 3600, energy, None)


def test_phases_get_the_time_since_the_last_mark():
    laps = Laps(Measured(), at(10.0))
    laps.close("step", at(15.0, 1))
    laps.close("step", at(16.0, 2))
    laps.close("evaluation", at(20.0, 2))
    laps.close("save", at(22.0, 2))
    laps.close("step", at(23.0, 3))
    measured = laps.measured
    assert measured.mean("step") == 1.0
    assert measured.mean("evaluation") == 4.0
    assert measured.mean("save") == 2.0


def test_the_first_step_stands_in_only_until_the_second():
    laps = Laps(Measured(), at(0.0))
    laps.close("step", at(30.0, 1))
    assert laps.measured.mean("step") == 30.0
    laps.close("step", at(31.0, 2))
    assert (laps.measured.mean("step"), laps.measured.count("step")) == (1.0, 1)


def test_the_first_step_after_a_resume_does_not_count():
    known = Measured()
    known.add("step", {"seconds": 1.0})
    laps = Laps(known, at(0.0))
    laps.close("step", at(30.0, 1))
    laps.close("step", at(31.0, 2))
    assert (known.mean("step"), known.count("step")) == (1.0, 2)


def test_several_data_sets_at_one_boundary_are_one_evaluation():
    laps = Laps(Measured(), at(0.0))
    laps.close("step", at(1.0, 1))
    laps.close("evaluation", at(3.0, 1))
    laps.close("evaluation", at(7.0, 1))
    laps.close("save", at(8.0, 1))
    assert (laps.measured.mean("evaluation"), laps.measured.count("evaluation")) == (6.0, 1)


def test_time_can_belong_to_no_phase():
    laps = Laps(Measured(), at(0.0))
    laps.close("step", at(1.0, 1))
    laps.skip(at(50.0, 1))
    laps.close("step", at(52.0, 2))
    assert laps.measured.mean("step") == 2.0


def test_tokens_and_energy_are_measured_where_they_are_known():
    laps = Laps(Measured(), at(0.0, tokens=0, energy=0.0))
    laps.close("step", at(1.0, 1, tokens=10, energy=0.1))
    laps.close("step", at(2.0, 2, tokens=40, energy=0.3))
    assert laps.measured.mean("step", "tokens") == 30
    assert laps.measured.mean("step", "energy_kwh") == pytest.approx(0.2)
    laps.close("step", at(3.0, 3))
    assert laps.measured.count("step", "tokens") == 1


def test_unknown_amounts_are_left_out():
    assert quantities(at(1.0, 2)) == {"seconds": 1.0, "steps": 2.0}
