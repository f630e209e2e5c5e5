"""The real ``pynvml`` over a library in Python: names, arguments, structures and units as pynvml has them."""

import ctypes

import pynvml
import pytest

from hf_trainplus.monitor.devices.nvml import NvmlSource, NvmlUnavailableError
from tests.support.fake_nvml_library import FakeLibrary

NOT_AVAILABLE = ctypes.c_ulonglong(-1).value


@pytest.fixture
def library(monkeypatch):
    def put(**options):
        made = FakeLibrary(**options)
        monkeypatch.setattr(pynvml, "nvmlLib", made)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        return made

    return put


def test_every_value_comes_through_pynvml_in_its_unit(library):
    made = library(processes=[(77, 500), (78, 9)])
    opened = NvmlSource(pynvml, pid=77, torch_uuids=["12345678-aaaa"])
    device = opened.devices[0]
    assert (device.info.uuid, device.info.name, device.info.matched_by) == (
        "GPU-12345678-aaaa",
        "NVIDIA H200",
        "torch uuid",
    )
    assert device.read().numbers() == {
        "utilization_percent": 41.0,
        "memory_used_gib": 2.0,
        "memory_total_gib": 140.0,
        "process_memory_gib": 500 / 1024**3,
        "power_watts": 300.0,
        "power_limit_watts": 700.0,
        "temperature_celsius": 55.0,
        "sm_clock_mhz": 1980.0,
        "memory_clock_mhz": 3201.0,
        "throttled_percent": 100.0,
        "power_throttled_percent": 0.0,
        "thermal_throttled_percent": 100.0,
        "pcie_tx_bytes_per_second": 1_024_000.0,
        "pcie_rx_bytes_per_second": 3_072_000.0,
        "nvlink_tx_gib": 7 / 1024**2,
        "nvlink_rx_gib": 9 / 1024**2,
        "energy_joules": 5000.0,
        "ecc_uncorrected_errors": 3.0,
    }
    assert (opened.driver_version, opened.zeros_are_suspect(0)) == ("570.86.15", False)
    opened.close()
    assert (made.started, opened.drain_notices()) == (0, [])


def test_memory_that_the_driver_does_not_tell_is_missing(library):
    library(processes=[(77, NOT_AVAILABLE)])
    assert NvmlSource(pynvml, pid=77).devices[0].read().process_memory_bytes is None


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (("nvmlDeviceGetComputeRunningProcesses_v3",), 500.0),
        (("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"), None),
    ],
)
def test_a_driver_older_than_pynvml_misses_no_more_than_it_must(library, missing, expected):
    library(processes=[(77, 500)], missing=missing)
    opened = NvmlSource(pynvml, pid=77)
    readings = [opened.devices[0].read() for _ in range(4)]
    assert [reading.process_memory_bytes for reading in readings] == [expected] * 4
    assert [reading.power_watts for reading in readings] == [300.0] * 4
    assert opened.drain_notices() == []


def test_a_library_that_lacks_its_start_is_unavailable(library):
    library(missing=("nvmlInitWithFlags",))
    with pytest.raises(NvmlUnavailableError, match="NVML cannot be started"):
        NvmlSource(pynvml)
