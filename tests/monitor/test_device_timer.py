import pytest

from hf_trainplus.monitor.device_timer import DeviceTimer


class FakeDevice:
    """A queue whose clock runs apart from the host's: marks are passed when the test says so."""

    def __init__(self):
        self.now, self.events, self.made = 0.0, [], 0

    def make_event(self):
        self.made += 1
        return FakeEvent(self)

    def work(self, milliseconds):
        """Queue work; it takes device time."""
        self.now += milliseconds

    def pass_all(self):
        for event in self.events:
            event.passed = True


class FakeEvent:
    def __init__(self, device):
        self.device, self.at, self.passed = device, None, False

    def record(self):
        self.at, self.passed = self.device.now, False
        self.device.events.append(self)

    def query(self):
        return self.passed

    def elapsed_time(self, end_event):
        assert self.passed, "elapsed_time of a mark that is not passed is an error in CUDA"
        assert end_event.passed, "elapsed_time of a mark that is not passed is an error in CUDA"
        return end_event.at - self.at

    def synchronize(self):
        raise AssertionError("the timer must never wait")


def step(timer, device, forward, optimizer):
    timer.begin("forward_backward")
    device.work(forward)
    timer.end()
    timer.begin("optimizer")
    device.work(optimizer)
    timer.end()


def test_parts_are_summed_once_the_device_has_passed_them():
    device = FakeDevice()
    timer = DeviceTimer(device.make_event)
    step(timer, device, 30, 10)
    step(timer, device, 50, 10)
    assert timer.collect() == {}
    device.pass_all()
    assert timer.collect() == {"forward_backward": 0.08, "optimizer": 0.02}
    assert timer.collect() == {"forward_backward": 0.08, "optimizer": 0.02}


def test_marks_are_reused():
    device = FakeDevice()
    timer = DeviceTimer(device.make_event)
    for _ in range(100):
        step(timer, device, 1, 1)
        timer.look()
        device.pass_all()
        timer.collect()
    assert device.made <= 5


def test_without_a_look_at_the_results_memory_stays_bounded():
    device = FakeDevice()
    timer = DeviceTimer(device.make_event, capacity=8)
    for _ in range(1000):
        step(timer, device, 1, 1)
    assert device.made <= 18
    assert timer.dropped == 2000 - 8


class Slow(FakeEvent):
    """A mark that the device has passed ``microseconds`` after it was recorded, on a clock that each question moves."""

    def __init__(self, device, clock, microseconds):
        super().__init__(device)
        self.clock, self.microseconds = clock, microseconds

    def query(self):
        self.clock[0] += 1e-6
        return self.clock[0] >= self.microseconds * 1e-6


@pytest.mark.parametrize(("microseconds", "idle"), [(0, 1.0), (8, 1.0), (5000, 0.0)])
def test_an_empty_queue_is_noticed_though_a_mark_takes_microseconds_to_come_back(microseconds, idle):
    device, clock = FakeDevice(), [0.0]
    timer = DeviceTimer(lambda: Slow(device, clock, microseconds), patience=30e-6, clock=lambda: clock[0])
    assert timer.idle_share is None
    timer.look()
    assert timer.idle_share == idle
    assert clock[0] < 40e-6, "a look ends with its patience"


def test_marks_set_by_hand_are_counted_as_a_part():
    device = FakeDevice()
    timer = DeviceTimer(device.make_event)
    start = timer.mark()
    device.work(25)
    timer.add("communication", start, timer.mark())
    device.pass_all()
    assert timer.collect() == {"communication": 0.025}


def test_an_open_part_is_given_up_by_the_next_and_an_end_alone_is_nothing():
    device = FakeDevice()
    timer = DeviceTimer(device.make_event)
    timer.end()
    timer.begin("a")
    device.work(5)
    timer.begin("b")
    device.work(7)
    timer.end()
    device.pass_all()
    assert timer.collect() == {"b": 0.007}


def test_wrong_numbers_are_refused():
    with pytest.raises(ValueError, match="capacity=0"):
        DeviceTimer(lambda: None, capacity=0)
    with pytest.raises(ValueError, match="patience=-1"):
        DeviceTimer(lambda: None, patience=-1)
