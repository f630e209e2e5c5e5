"""Meters on an injected clock: time, device-hours, energy, money; cumulative over resumes."""

import json

import pytest

from hf_trainplus.budget.meter import Meter, Progress


class Clock:
    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


def test_device_hours_and_money_follow_the_clock():
    clock = Clock(100.0)
    meter = Meter(devices=8, usd_per_device_hour=2.5, clock=clock)
    clock.now += 1800
    reading = meter.read(Progress(steps=5, tokens=1000))
    assert (reading.wall_clock_seconds, reading.gpu_hours, reading.usd) == (1800.0, 4.0, 10.0)
    assert reading.progress.steps == 5


def test_counting_can_start_before_the_meter():
    clock = Clock(100.0)
    assert Meter(clock=clock, started=40.0).read(Progress()).wall_clock_seconds == 60.0


def test_what_is_not_measured_is_none_and_left_out():
    reading = Meter(clock=Clock()).read(Progress(steps=1))
    assert reading.energy_kwh is None
    assert reading.usd is None
    assert reading.progress.flops is None
    assert set(reading.spent()) == {"wall_clock", "gpu_hours", "max_steps"}


def test_energy_comes_from_the_counter_and_covers_all_devices():
    joules = iter([1000.0, 1000.0 + 3.6e6])
    meter = Meter(devices=4, devices_metered=1, clock=Clock(), joules=lambda: next(joules))
    assert meter.read(Progress()).energy_kwh == pytest.approx(4.0)


def test_a_counter_that_fails_is_none_never_zero():
    joules = iter([5.0, None])
    meter = Meter(clock=Clock(), joules=lambda: next(joules))
    assert meter.read(Progress()).energy_kwh is None


def test_resume_adds_up_in_another_process_with_other_devices():
    clock = Clock()
    first = Meter(devices=2, usd_per_device_hour=1.0, clock=clock, process="a")
    clock.now = 3600
    saved = json.loads(json.dumps(first.state()))
    other = Clock(7.0)
    second = Meter(devices=8, usd_per_device_hour=1.0, clock=other, process="b")
    second.resume(saved)
    other.now += 3600
    reading = second.read(Progress())
    assert (reading.wall_clock_seconds, reading.gpu_hours, reading.usd) == (7200.0, 10.0, 10.0)


def test_resume_in_the_same_process_counts_no_second_twice():
    clock = Clock()
    first = Meter(clock=clock, started=0.0, process="a")
    clock.now = 100
    saved = first.state()
    clock.now = 130
    second = Meter(clock=clock, started=0.0, process="a")
    second.resume(saved, uncounted_seconds=5.0)
    assert second.read(Progress()).wall_clock_seconds == 130.0


def test_the_end_of_the_save_that_wrote_the_state_can_be_added():
    first = Meter(devices=2, usd_per_device_hour=3.0, clock=Clock(), started=-100.0, process="a")
    second = Meter(devices=2, usd_per_device_hour=3.0, clock=Clock(), process="b")
    second.resume(first.state(), uncounted_seconds=36.0)
    reading = second.read(Progress())
    assert reading.wall_clock_seconds == 136.0
    assert reading.gpu_hours == pytest.approx(2 * 136 / 3600)
    assert reading.usd == pytest.approx(3.0 * reading.gpu_hours)


def test_an_unpriced_session_is_charged_at_todays_price():
    first = Meter(devices=2, clock=Clock(), started=-3600.0)
    second = Meter(devices=2, usd_per_device_hour=3.0, clock=Clock())
    second.resume(first.state())
    assert second.read(Progress()).usd == 6.0


def test_energy_of_a_session_that_measured_none_stays_unknown():
    first = Meter(clock=Clock())
    second = Meter(clock=Clock(), joules=lambda: 5.0)
    second.resume(first.state())
    assert second.read(Progress()).energy_kwh is None


def test_energy_adds_up_over_resumes():
    first_joules, second_joules = iter([0.0, 3.6e6]), iter([9.0, 9.0 + 7.2e6])
    first = Meter(clock=Clock(), joules=lambda: next(first_joules))
    second = Meter(clock=Clock(), joules=lambda: next(second_joules))
    second.resume(first.state())
    assert second.read(Progress()).energy_kwh == pytest.approx(3.0)


@pytest.mark.parametrize("options", [{"devices": 0}, {"devices_metered": 0}])
def test_devices_are_counted_from_one(options):
    with pytest.raises(ValueError, match="allowed are integers >= 1"):
        Meter(**options)


def test_a_price_is_above_zero():
    with pytest.raises(ValueError, match="usd_per_device_hour=0; allowed are prices above 0"):
        Meter(usd_per_device_hour=0)
