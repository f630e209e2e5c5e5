from types import SimpleNamespace

import pytest

from hf_trainplus.monitor.devices.amd import AmdSource, AmdUnavailableError


class AmdSmiError(Exception):
    pass


class FakeSmi:
    """The part of amdsmi that the monitor uses; a handle is a dict of its answers."""

    AmdSmiException = AmdSmiError
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT=1)
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)
    AmdSmiClkType = SimpleNamespace(GFX=1, MEM=5)

    def __init__(self, count=1, broken_init=False, hip=None):
        self.handles = [self.healthy(position) for position in range(count)]
        self.broken_init = broken_init
        # position in amdsmi's list -> HIP index
        self.hip = list(range(count)) if hip is None else hip
        self.open = False

    @staticmethod
    def healthy(position):
        return {
            "serial": f"0x{position}ABC",
            "use": 30,
            "power": {"average_socket_power": 210, "current_socket_power": "N/A"},
        }

    def amdsmi_init(self):
        if self.broken_init:
            raise AmdSmiError("driver not loaded")
        self.open = True

    def amdsmi_shut_down(self):
        self.open = False

    def amdsmi_get_processor_handles(self):
        return self.handles

    def amdsmi_get_gpu_asic_info(self, handle):
        return {"asic_serial": handle["serial"], "market_name": "MI300X"}

    def amdsmi_get_gpu_enumeration_info(self, handle):
        if self.hip == "unknown function":
            raise AttributeError("amdsmi_get_gpu_enumeration_info")
        return {"hip_id": self.hip[self.handles.index(handle)], "drm_card": 1}

    def amdsmi_get_gpu_activity(self, handle):
        return {"gfx_activity": handle["use"]}

    def amdsmi_get_gpu_vram_usage(self, handle):
        return {"vram_used": 512, "vram_total": 1024}

    def amdsmi_get_power_info(self, handle):
        if handle["power"] is None:
            raise AmdSmiError("busy")
        return handle["power"]

    def amdsmi_get_temp_metric(self, handle, kind, metric):
        return 64

    def amdsmi_get_clock_info(self, handle, kind):
        return {"clk": 2100 if kind == 1 else 1300}

    def amdsmi_get_energy_count(self, handle):
        return {"energy_accumulator": 1_000_000, "counter_resolution": 15.3}

    def amdsmi_get_gpu_process_list(self, handle):
        return [{"pid": 5, "memory_usage": {"vram_mem": 99}}]


def serials(smi, environment):
    return [device.info.uuid for device in AmdSource(smi, environment=environment).devices]


def test_every_value_in_its_unit():
    reading = AmdSource(FakeSmi(), environment={}, pid=5).devices[0].read()
    assert reading.utilization_percent == 30.0
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (512 * 1024**2, 1024**3)
    assert reading.power_watts == 210.0
    assert reading.temperature_celsius == 64.0
    assert (reading.sm_clock_mhz, reading.memory_clock_mhz) == (2100.0, 1300.0)
    assert reading.energy_joules == pytest.approx(15.3)
    assert reading.process_memory_bytes == 99.0


def test_not_available_is_missing_and_takes_no_other_with_it():
    smi = FakeSmi()
    smi.handles[0]["use"] = "N/A"
    source = AmdSource(smi, environment={}, pid=6)
    reading = source.devices[0].read()
    assert reading.utilization_percent is None
    assert reading.process_memory_bytes is None
    assert reading.power_watts == 210.0
    assert source.drain_notices() == []


def test_a_failing_value_is_warned_about_once():
    smi = FakeSmi()
    smi.handles[0]["power"] = None
    source = AmdSource(smi, environment={})
    assert [source.devices[0].read().power_watts for _ in range(8)] == [None] * 8
    assert len(source.drain_notices()) == 1


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ["GPU-0abc", "GPU-1abc", "GPU-2abc"]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, ["GPU-2abc", "GPU-0abc"]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ["GPU-1abc"]),
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, ["GPU-2abc"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-2ABC"}, ["GPU-2abc"]),
        ({"HIP_VISIBLE_DEVICES": "0,7,1"}, ["GPU-0abc"]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_masks_apply_one_after_the_other(environment, expected):
    assert serials(FakeSmi(3), environment) == expected


def test_devices_stand_in_hips_order_and_not_in_that_of_the_bus():
    assert serials(FakeSmi(3, hip=[2, 0, 1]), {}) == ["GPU-1abc", "GPU-2abc", "GPU-0abc"]
    assert serials(FakeSmi(3, hip=[2, 0, 1]), {"HIP_VISIBLE_DEVICES": "2,0"}) == ["GPU-0abc", "GPU-1abc"]


@pytest.mark.parametrize("hip", ["unknown function", ["N/A", 0, 1], [0, 0, 1]])
def test_without_hips_order_no_position_is_believed(hip):
    source = AmdSource(FakeSmi(3, hip=hip), environment={"HIP_VISIBLE_DEVICES": "1"})
    assert source.devices == ()
    assert "3 AMD devices are not monitored" in source.drain_notices()[0]
    assert serials(FakeSmi(3, hip=hip), {}) == []
    assert serials(FakeSmi(3, hip=hip), {"ROCR_VISIBLE_DEVICES": "GPU-2ABC,GPU-0ABC", "HIP_VISIBLE_DEVICES": "1"}) == [
        "GPU-0abc"
    ]
    assert serials(FakeSmi(3, hip=hip), {"HIP_VISIBLE_DEVICES": ""}) == []


def test_a_single_device_needs_no_order():
    device = AmdSource(FakeSmi(hip="unknown function"), environment={}).devices[0]
    assert device.info.matched_by == "single device"


def test_a_library_that_cannot_start_says_so():
    with pytest.raises(AmdUnavailableError, match="driver not loaded"):
        AmdSource(FakeSmi(broken_init=True), environment={})


def test_close_shuts_it_down():
    smi = FakeSmi()
    source = AmdSource(smi, environment={})
    assert smi.open
    source.close()
    assert not smi.open
