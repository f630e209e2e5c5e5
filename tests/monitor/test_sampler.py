import gc
import threading
import time
import tracemalloc

import pytest

from hf_trainplus.monitor.device_log import device_log_values
from hf_trainplus.monitor.devices import DeviceReading
from hf_trainplus.monitor.sampler import Sampler, device_facts
from tests.support.fake_devices import FakeDevice, opened

GIB = 1024.0**3


class Hand:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def hand_sampler(*devices, **options):
    clock = Hand()
    return Sampler(opened(*devices, **options), None, clock=clock), clock


def busy(**values):
    return {"utilization_percent": 50.0, "memory_used_bytes": 8 * GIB, "power_watts": 300.0, **values}


def test_values_are_named_by_logical_index_and_kept_apart_by_phase():
    sampler, clock = hand_sampler(FakeDevice(0, **busy()), FakeDevice(3, **busy(power_watts=100.0)))
    sampler.timeline.enter("train_step")
    clock.now = 2.0
    values = sampler.sample()
    assert values["gpu0/power_watts"] == 300.0
    assert values["gpu3/power_watts"] == 100.0
    sampler.timeline.enter("evaluation")
    clock.now = 3.0
    sampler.sample()
    statistics = sampler.run_statistics()
    assert statistics["gpu0/power_watts"]["train_step"]["seconds"] == 2.0
    assert statistics["gpu0/power_watts"]["evaluation"]["seconds"] == 1.0
    assert statistics["gpu0/power_watts"]["all"]["seconds"] == 3.0


def test_counters_become_growth_and_rates():
    grown = iter([(1000.0, 2 * GIB, 5.0), (4600.0, 8 * GIB, 7.0)])

    def reading():
        joules, sent, errors = next(grown)
        return DeviceReading(energy_joules=joules, nvlink_tx_bytes=sent, ecc_uncorrected_errors=errors)

    sampler, clock = hand_sampler(FakeDevice(0, reading=reading))
    clock.now = 1.0
    assert sampler.sample() == {"gpu0/energy_wh": 0.0, "gpu0/ecc_uncorrected_errors": 0.0}
    clock.now = 3.0
    second = sampler.sample()
    assert second == {
        "gpu0/energy_wh": 1.0,
        "gpu0/nvlink_tx_gib_per_second": 3.0,
        "gpu0/ecc_uncorrected_errors": 2.0,
    }


def test_a_counter_that_begins_anew_has_no_rate():
    sent = iter([8 * GIB, 1 * GIB, 2 * GIB])
    sampler, clock = hand_sampler(FakeDevice(0, reading=lambda: DeviceReading(nvlink_tx_bytes=next(sent))))
    seen = []
    for _ in range(3):
        clock.now += 1.0
        seen.append(sampler.sample())
    assert seen == [{}, {}, {"gpu0/nvlink_tx_gib_per_second": 1.0}]


def test_wsl_zero_with_steps_advancing_is_not_measurable_and_has_no_key():
    device = FakeDevice(0, **busy(utilization_percent=0.0))
    sampler, clock = hand_sampler(device, proof=5)
    for _ in range(8):
        sampler.timeline.enter("train_step")
        clock.now += 1.0
        assert "gpu0/utilization_percent" not in sampler.sample()
    assert device_facts(sampler._opened)[0]["utilization"] == "not measurable"
    assert "gpu0/utilization_percent" not in device_log_values(sampler.take_window())
    assert device_log_values(sampler.take_window()) == {}


def test_a_healthy_device_is_measured():
    sampler, clock = hand_sampler(FakeDevice(0, **busy()))
    clock.now += 1.0
    sampler.sample()
    assert device_facts(sampler._opened)[0]["utilization"] == "measured"


def test_a_window_begins_anew_and_the_run_goes_on():
    sampler, clock = hand_sampler(FakeDevice(0, **busy()))
    clock.now = 1.0
    sampler.sample()
    assert sampler.take_window().get("gpu0/power_watts").seconds == 1.0
    assert sampler.take_window().names() == []
    clock.now = 2.0
    sampler.sample()
    assert sampler.run_statistics()["gpu0/power_watts"]["all"]["seconds"] == 2.0


def test_log_values_tell_means_extremes_and_phases():
    sampler, clock = hand_sampler(FakeDevice(0, **busy(throttle_reasons=("power cap",), energy_joules=7200.0)))
    sampler.timeline.enter("train_step")
    clock.now = 1.0
    sampler.sample()
    values = device_log_values(sampler.take_window(), sampler.cost())
    assert values["gpu0/utilization_percent"] == 50.0
    assert values["gpu0/train_step/utilization_percent"] == 50.0
    assert values["gpu0/memory_used_gib"] == values["gpu0/memory_used_gib_max"] == 8.0
    assert values["gpu0/throttled_percent"] == 100.0
    assert values["gpu0/energy_wh"] == 0.0
    assert values["monitor/cpu_percent"] >= 0.0
    for key, value in values.items():
        assert set(key) <= set("abcdefghijklmnopqrstuvwxyz0123456789_/"), key
        assert type(value) is float


def test_samples_of_eight_devices_leave_memory_constant():
    # the benchmark does it with 10,000
    devices = [FakeDevice(index, **busy(temperature_celsius=60.0, energy_joules=1.0)) for index in range(8)]
    sampler, clock = hand_sampler(*devices)

    def sample(times):
        for number in range(times):
            if number % 50 == 0:
                sampler.timeline.enter("train_step" if number % 100 else "waiting")
            clock.now += 1.0
            sampler.sample()

    tracemalloc.start()
    try:
        sample(200)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        sample(1300)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert sampler.cost().samples == 1500
    assert grown < 4096


def wait_for(condition, seconds=10.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came about"
        time.sleep(0.002)


def test_the_thread_samples_on_its_own_and_ends_when_told():
    device = FakeDevice(0, **busy())
    sampler = Sampler(opened(device), None, interval=0.01)
    sampler.start()
    sampler.start()
    wait_for(lambda: device.reads >= 5)
    sampler.stop()
    assert not sampler.running
    reads = device.reads
    time.sleep(0.05)
    assert device.reads == reads
    cost = sampler.cost()
    assert cost.samples == reads
    assert cost.cpu_percent > 0
    assert cost.samples + cost.missed == pytest.approx(cost.wall_seconds / 0.01, rel=0.5, abs=8)


def test_the_thread_is_a_daemon_and_ends_when_training_does():
    alive = [True]
    sampler = Sampler(opened(FakeDevice(0)), None, interval=0.005, alive=lambda: alive[0])
    sampler.start()
    thread = [one for one in threading.enumerate() if one.name == "trainplus-sampler"][-1]
    assert thread.daemon
    alive[0] = False
    wait_for(lambda: not sampler.running)


def test_the_schedule_is_absolute_and_late_samples_are_counted_not_made_up():
    slow = [0.05]

    def reading():
        time.sleep(slow[0])
        return DeviceReading(power_watts=1.0)

    sampler = Sampler(opened(FakeDevice(0, reading=reading)), None, interval=0.01)
    sampler.start()
    wait_for(lambda: sampler.cost().samples >= 4)
    sampler.stop()
    cost = sampler.cost()
    assert cost.missed >= 3 * cost.samples


def test_a_device_that_breaks_the_rules_ends_sampling_with_a_word_and_nothing_else():
    def reading():
        raise ZeroDivisionError("driver gone mad")

    sampler = Sampler(opened(FakeDevice(0, reading=reading)), None, interval=0.01)
    sampler.start()
    wait_for(lambda: not sampler.running)
    assert sampler.drain_notices() == ["device sampling has ended: ZeroDivisionError: driver gone mad"]
    assert sampler.drain_notices() == []


@pytest.mark.parametrize("interval", [0, -1.0, float("nan"), float("inf"), 86401])
def test_an_interval_at_which_nothing_can_run_is_refused(interval):
    with pytest.raises(ValueError, match=f"interval={interval}; allowed are seconds above 0 and at most 86400"):
        Sampler(opened(), None, interval=interval)


def test_an_interval_that_is_no_number_is_refused():
    with pytest.raises(TypeError, match="interval='1' is no number; allowed are seconds"):
        Sampler(opened(), None, interval="1")


def test_a_value_that_is_no_number_is_missing():
    sampler, _ = hand_sampler(FakeDevice(0, **busy(power_watts=float("nan"), temperature_celsius=float("inf"))))
    assert set(sampler.sample()) == {"gpu0/utilization_percent", "gpu0/memory_used_gib"}


def test_only_the_driven_devices_are_read_when_several_processes_share_a_machine():
    devices = opened(FakeDevice(0), FakeDevice(1), FakeDevice(2))
    devices.keep_first(2)
    assert [device.info.index for device in devices.devices] == [0, 1]
    assert devices.drain_notices() == []
    devices.keep_first(8)
    assert "3 of 8 devices are monitored" in devices.drain_notices()[0]
