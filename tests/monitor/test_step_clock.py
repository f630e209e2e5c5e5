import time

import numpy as np
import pytest

from hf_trainplus.monitor.step_clock import PARTS, PartTimes, StepClock


class Hand:
    """A clock moved by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def pass_(self, seconds):
        self.now += seconds


@pytest.fixture
def hand():
    return Hand()


@pytest.fixture
def clock(hand):
    return StepClock(clock=hand)


def used(clock):
    return {part: seconds for part, seconds in clock.read().seconds.items() if seconds}


def test_switch_closes_the_running_part(clock, hand):
    hand.pass_(1)
    clock.switch("forward_backward")
    hand.pass_(2)
    clock.switch("optimizer")
    hand.pass_(4)
    assert used(clock) == {"other": 1.0, "forward_backward": 2.0, "optimizer": 4.0}


def test_lap_names_what_has_passed_and_leaves_what_runs(clock, hand):
    hand.pass_(3)
    clock.lap("saving")
    hand.pass_(1)
    assert used(clock) == {"saving": 3.0, "other": 1.0}


def test_a_phase_takes_its_time_out_of_what_it_stands_in(clock, hand):
    clock.switch("forward_backward")
    hand.pass_(1)
    with clock.phase("callbacks"):
        hand.pass_(5)
        with clock.phase("host_to_device"):
            hand.pass_(7)
        hand.pass_(1)
    hand.pass_(2)
    assert used(clock) == {"forward_backward": 3.0, "callbacks": 6.0, "host_to_device": 7.0}
    assert clock.part == "forward_backward"


def test_evaluation_absorbs_what_happens_inside(clock, hand):
    with clock.phase("evaluation"):
        hand.pass_(1)
        with clock.phase("logging"):
            hand.pass_(2)
        with clock.phase("host_to_device"):
            hand.pass_(4)
        clock.switch("forward_backward")
        clock.lap("data_wait")
        hand.pass_(8)
    assert used(clock) == {"evaluation": 15.0}


def test_an_exception_closes_the_phase(clock, hand):
    def evaluate():
        with clock.phase("evaluation"):
            hand.pass_(2)
            raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        evaluate()
    hand.pass_(1)
    assert used(clock) == {"evaluation": 2.0, "other": 1.0}
    assert clock.depth == 0


def test_reading_does_not_disturb(clock, hand):
    with clock.phase("evaluation"):
        hand.pass_(2)
        clock.read()
        hand.pass_(2)
        assert used(clock) == {"evaluation": 4.0}
    assert used(clock) == {"evaluation": 4.0}


def test_start_begins_anew(clock, hand):
    hand.pass_(3)
    clock.count_step()
    clock.start()
    hand.pass_(1)
    now = clock.read()
    assert (now.total_seconds, now.steps, now.seconds["other"]) == (1.0, 0, 1.0)


@pytest.mark.parametrize("call", ["switch", "lap", "phase"])
def test_an_unknown_part_is_refused_with_the_known_ones(clock, call):
    with pytest.raises(ValueError, match="part='forward'; allowed are data_wait, host_to_device"):
        getattr(clock, call)("forward")


def test_parts_add_up_whatever_is_called(clock, hand):
    rng = np.random.default_rng(0)
    for _ in range(2000):
        part = PARTS[rng.integers(len(PARTS))]
        hand.pass_(float(rng.exponential()))
        action = rng.integers(3)
        if action == 0:
            clock.switch(part)
        elif action == 1:
            clock.lap(part)
        else:
            with clock.phase(part):
                hand.pass_(float(rng.exponential()))
    now = clock.read()
    assert sum(now.seconds.values()) == pytest.approx(now.total_seconds, rel=1e-9)
    assert min(now.seconds.values()) >= 0


def test_minus_and_training_seconds(clock, hand):
    hand.pass_(1)
    first = clock.read()
    clock.count_step()
    for part, seconds in (("evaluation", 4), ("saving", 2), ("forward_backward", 3)):
        with clock.phase(part):
            hand.pass_(seconds)
    gone = clock.read().minus(first)
    assert (gone.total_seconds, gone.steps, gone.training_seconds) == (9.0, 1, 3.0)
    assert gone.share("evaluation") == pytest.approx(4 / 9)


def test_no_time_has_no_shares():
    assert PartTimes({"other": 0.0}, 0.0, 0).share("other") is None


def test_a_step_costs_microseconds():
    clock = StepClock()
    began = time.perf_counter()
    for _ in range(2000):
        with clock.phase("rank_sync"), clock.phase("data_wait"):
            clock.lap("host_to_device")
            clock.lap("data_wait")
        for part in ("forward_backward", "optimizer", "optimizer", "other"):
            with clock.phase("callbacks"):
                pass
            clock.switch(part)
    # 0.2 ms is 1 % of a 20 ms step; measured is about a twentieth of that
    assert (time.perf_counter() - began) / 2000 < 200e-6
