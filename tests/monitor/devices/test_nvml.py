import ctypes

import pynvml
import pytest

from hf_trainplus.monitor.devices.nvml import NvmlSource, NvmlUnavailableError
from tests.support.fake_nvml import NOT_SUPPORTED, UNKNOWN, FakeGpu, FakeNvml

NAMES = {
    "utilization_percent": "nvmlDeviceGetUtilizationRates",
    "power_watts": "nvmlDeviceGetPowerUsage",
    "power_limit_watts": "nvmlDeviceGetEnforcedPowerLimit",
    "temperature_celsius": "nvmlDeviceGetTemperature",
    "energy_joules": "nvmlDeviceGetTotalEnergyConsumption",
    "ecc_uncorrected_errors": "nvmlDeviceGetTotalEccErrors",
    "process_memory_bytes": "nvmlDeviceGetComputeRunningProcesses",
    "throttle_reasons": "nvmlDeviceGetCurrentClocksEventReasons",
}


def source(*gpus, **options):
    return NvmlSource(FakeNvml(list(gpus)), pid=77, **options)


def test_every_value_in_its_unit():
    gpu = FakeGpu(processes=[(77, 1024**3), (78, 5), (77, 1024**2)], throttle=0x4 | 0x1)
    reading = source(gpu).devices[0].read()
    assert reading.utilization_percent == 40.0
    assert reading.memory_used_bytes == 2 * 1024**3
    assert reading.memory_total_bytes == 140 * 1024**3
    assert reading.process_memory_bytes == 1024**3 + 1024**2
    assert reading.power_watts == 300.0
    assert reading.power_limit_watts == 700.0
    assert reading.temperature_celsius == 55.0
    assert (reading.sm_clock_mhz, reading.memory_clock_mhz) == (1980.0, 3201.0)
    assert reading.throttle_reasons == ("power cap",)
    assert reading.energy_joules == 5000.0
    assert (reading.pcie_tx_bytes_per_second, reading.pcie_rx_bytes_per_second) == (1_024_000.0, 3_072_000.0)
    assert (reading.nvlink_tx_bytes, reading.nvlink_rx_bytes) == (7168.0, 9216.0)
    assert reading.ecc_uncorrected_errors == 0.0


@pytest.mark.parametrize("broken", sorted(NAMES))
@pytest.mark.parametrize("code", [NOT_SUPPORTED, UNKNOWN])
def test_one_bad_value_is_missing_and_takes_no_other_with_it(broken, code):
    gpu = FakeGpu(processes=[(77, 5)])
    whole = source(gpu).devices[0].read()
    gpu.faults[NAMES[broken]] = code
    if broken == "throttle_reasons":
        gpu.faults["nvmlDeviceGetCurrentClocksThrottleReasons"] = code
    reading = source(gpu).devices[0].read()
    assert getattr(reading, broken) is None
    for name in NAMES:
        if name != broken:
            assert getattr(reading, name) == getattr(whole, name), name


def test_an_unknown_error_is_retried_a_few_times_and_warned_about_once():
    gpu = FakeGpu(faults={"nvmlDeviceGetPowerUsage": UNKNOWN})
    opened = source(gpu)
    for _ in range(20):
        opened.devices[0].read()
    assert gpu.calls["nvmlDeviceGetPowerUsage"] == 3
    notices = opened.drain_notices()
    assert len(notices) == 1
    assert "power_watts" in notices[0]
    assert opened.drain_notices() == []


def test_a_device_that_falls_off_the_bus_goes_missing_and_the_other_stays():
    lost, healthy = FakeGpu(uuid="GPU-a0"), FakeGpu(uuid="GPU-b0")
    opened = source(lost, healthy)
    assert opened.devices[0].read().power_watts == 300.0
    lost.lose()
    for _ in range(5):
        readings = [device.read() for device in opened.devices]
    assert readings[0].numbers() == {}
    assert readings[1].power_watts == 300.0
    assert len(opened.drain_notices()) == 1
    asked = sum(lost.calls.values())
    opened.devices[0].read()
    assert sum(lost.calls.values()) == asked, "a lost device is not asked for ever"


def test_a_driver_mismatch_says_so():
    nvml = FakeNvml([FakeGpu()], init_error=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    with pytest.raises(NvmlUnavailableError, match="driver and its library have different versions"):
        NvmlSource(nvml)


def test_a_machine_without_a_driver_says_so():
    with pytest.raises(NvmlUnavailableError, match="NVML cannot be started"):
        NvmlSource(FakeNvml([], init_error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED))


def test_mig_gives_memory_of_the_slice_and_no_use_or_power():
    mig = FakeGpu(uuid="MIG-51", used=3 * 1024**3, total=20 * 1024**3, processes=[(77, 9)])
    gpu = FakeGpu(uuid="GPU-a", mig=True, slices=[mig], celsius=61, throttle=0x40)
    opened = source(gpu, mask="MIG-51")
    device = opened.devices[0]
    reading = device.read()
    assert device.info.kind == "mig"
    assert device.info.name == "NVIDIA H200"
    assert reading.memory_used_bytes == 3 * 1024**3
    assert reading.process_memory_bytes == 9
    assert reading.utilization_percent is None
    assert reading.power_watts is None
    assert reading.energy_joules is None
    assert reading.temperature_celsius == 61.0
    assert reading.throttle_reasons == ("thermal (hardware)",)
    assert "nvmlDeviceGetUtilizationRates" not in mig.calls
    assert opened.zeros_are_suspect(0)
    assert opened.drain_notices() == []


def test_a_vgpu_is_suspect_and_bare_metal_is_not():
    opened = source(FakeGpu(uuid="GPU-a", virtualization=2), FakeGpu(uuid="GPU-b"))
    assert [opened.zeros_are_suspect(0), opened.zeros_are_suspect(1)] == [True, False]


@pytest.mark.parametrize("error", [OSError("gone"), ctypes.ArgumentError("argument 2: wrong type"), ValueError("odd")])
def test_an_error_of_the_library_beneath_takes_no_other_value_with_it(error):
    nvml = FakeNvml([FakeGpu()])

    def fail(*_):
        raise error

    nvml.nvmlDeviceGetPowerUsage = fail
    readings = [device.read() for device in NvmlSource(nvml).devices for _ in range(5)]
    assert [reading.power_watts for reading in readings] == [None] * 5
    assert [reading.temperature_celsius for reading in readings] == [55.0] * 5


def test_a_percentage_out_of_range_is_missing():
    opened = source(FakeGpu(use=4_294_967_295))
    assert opened.devices[0].read().utilization_percent is None


def test_a_process_in_another_pid_namespace_is_missing_not_zero():
    assert source(FakeGpu(processes=[(1, 500)])).devices[0].read().process_memory_bytes is None


def test_wsl_hides_process_memory():
    assert source(FakeGpu(processes=[(77, None)])).devices[0].read().process_memory_bytes is None


def test_an_unreadable_uuid_hides_one_device_only():
    opened = source(FakeGpu(uuid="GPU-a", faults={"nvmlDeviceGetUUID": UNKNOWN}), FakeGpu(uuid="GPU-b"), mask="GPU-b")
    assert [device.info.uuid for device in opened.devices] == ["GPU-b"]


def test_slow_values_are_asked_for_in_one_reading_of_ten():
    gpu = FakeGpu()
    device = source(gpu).devices[0]
    present = [device.read().pcie_tx_bytes_per_second is not None for _ in range(21)]
    assert [number for number, there in enumerate(present) if there] == [0, 10, 20]


def test_an_old_driver_has_throttle_reasons_under_their_old_name():
    gpu = FakeGpu(
        throttle=0x20, faults={"nvmlDeviceGetCurrentClocksEventReasons": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
    )
    assert source(gpu).devices[0].read().throttle_reasons == ("thermal (software)",)


MISSING = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND


def test_an_old_driver_lists_processes_in_their_second_version():
    gpu = FakeGpu(processes=[(77, 500)], faults={"nvmlDeviceGetComputeRunningProcesses": MISSING})
    opened = source(gpu)
    assert opened.devices[0].read().process_memory_bytes == 500.0
    assert opened.drain_notices() == []


def test_a_driver_too_old_to_list_processes_misses_them_alone():
    names = ["nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2"]
    gpu = FakeGpu(processes=[(77, 500)], faults=dict.fromkeys(names, MISSING))
    opened = source(gpu)
    readings = [opened.devices[0].read() for _ in range(3)]
    assert [reading.process_memory_bytes for reading in readings] == [None] * 3
    assert [reading.temperature_celsius for reading in readings] == [55.0] * 3
    assert [gpu.calls[name] for name in names] == [1, 1]  # it does not heal: asked once
    assert opened.drain_notices() == []


def test_close_shuts_nvml_down_once():
    nvml = FakeNvml([FakeGpu()])
    opened = NvmlSource(nvml)
    assert (nvml.started, opened.driver_version) == (1, "570.86.15")
    opened.close()
    opened.close()
    assert nvml.started == 0


def test_names_asked_for_exist_in_the_real_module():
    fakes = [name for name in dir(FakeNvml) if name.startswith("nvml")]
    assert len(fakes) > 20
    assert [name for name in fakes if not hasattr(pynvml, name)] == []
