"""Energy from a counter, from integrated power, or not at all; with a stand-in for NVML."""

import logging

import pytest

from hf_trainplus.budget.keeping.energy import PowerIntegral, nvml_joules


class FakeNvml:
    """Counters in millijoules, power in milliwatts; a missing entry is 'not supported'."""

    class NVMLError(Exception):
        pass

    def __init__(self, counters=None, power=None, uuids=("GPU-a",), init_fails=False):
        self.counters, self.power, self.uuids, self.init_fails = counters or {}, power or {}, uuids, init_fails

    def nvmlInit(self):
        if self.init_fails:
            raise self.NVMLError("Driver/library version mismatch")

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid not in self.uuids:
            raise self.NVMLError(f"Not Found {uuid}")
        return uuid

    def _read(self, values, handle):
        if handle not in values:
            raise self.NVMLError("Not Supported")
        return values[handle]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return self._read(self.counters, handle)

    def nvmlDeviceGetPowerUsage(self, handle):
        return self._read(self.power, handle)


def test_the_counter_is_preferred():
    nvml = FakeNvml(counters={"GPU-a": 5000}, power={"GPU-a": 1})
    joules = nvml_joules(["a"], nvml)
    assert joules() == 5.0
    nvml.counters["GPU-a"] = 9000
    assert joules() == 9.0


def test_power_is_integrated_where_there_is_no_counter():
    seconds = iter([0.0, 10.0, 20.0])
    nvml = FakeNvml(power={"GPU-a": 100_000})
    joules = nvml_joules(["GPU-a"], nvml, clock=lambda: next(seconds))
    assert joules() == 0.0
    nvml.power["GPU-a"] = 300_000
    assert joules() == 2000.0
    assert joules() == 5000.0


def test_several_devices_add_up_and_one_that_fails_makes_the_total_unknown():
    nvml = FakeNvml(counters={"GPU-a": 1000, "GPU-b": 2000}, uuids=("GPU-a", "GPU-b"))
    joules = nvml_joules(["GPU-a", "GPU-b"], nvml)
    assert joules() == 3.0
    del nvml.counters["GPU-b"]
    assert joules() is None


def test_nothing_measures_energy():
    assert nvml_joules(["a"], FakeNvml()) is None
    assert nvml_joules([], FakeNvml()) is None


@pytest.mark.parametrize("nvml", [FakeNvml(init_fails=True), FakeNvml(uuids=())])
def test_a_machine_without_a_working_driver_is_not_metered(nvml, caplog):
    with caplog.at_level(logging.INFO):
        assert nvml_joules(["GPU-a"], nvml) is None
    assert [record.message.startswith("Energy is not metered: NVML says") for record in caplog.records] == [True]


def test_a_power_reading_that_fails_is_bridged():
    seconds, watts = iter([0.0, 20.0]), iter([100.0, None, 100.0])
    joules = PowerIntegral(lambda: next(watts), clock=lambda: next(seconds))
    assert [joules(), joules(), joules()] == [0.0, 0.0, 2000.0]


def test_power_that_can_never_be_read_is_none():
    assert PowerIntegral(lambda: None, clock=lambda: 0.0)() is None
