import threading

import pytest

from hf_trainplus.monitor.phases import PhaseTimeline


def test_phases_are_added_up_until_they_are_collected():
    now = [0.0]
    timeline = PhaseTimeline(clock=lambda: now[0])
    for phase, seconds in (("train_step", 3), ("waiting", 1), ("train_step", 2)):
        timeline.enter(phase)
        now[0] += seconds
    assert timeline.collect() == {"other": 0.0, "train_step": 5.0, "waiting": 1.0}
    now[0] += 4
    assert timeline.collect() == {"train_step": 4.0}


def test_an_unknown_phase_is_refused():
    with pytest.raises(ValueError, match="phase='sleep'; allowed are train_step, waiting"):
        PhaseTimeline().enter("sleep")


def test_no_second_is_lost_between_two_threads():
    timeline, collected, done = PhaseTimeline(), [], threading.Event()

    def collect():
        while not done.is_set():
            collected.append(timeline.collect())

    began = timeline._since
    thread = threading.Thread(target=collect)
    thread.start()
    for _ in range(3000):
        timeline.enter("train_step")
        timeline.enter("waiting")
    done.set()
    thread.join()
    collected.append(timeline.collect())
    total = sum(sum(part.values()) for part in collected)
    assert total == pytest.approx(timeline._since - began, rel=1e-6)
