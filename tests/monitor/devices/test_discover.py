import sys
from types import ModuleType, SimpleNamespace

import pynvml
import pytest

from hf_trainplus.monitor.devices import open_devices
from tests.monitor.devices.test_amd import FakeSmi
from tests.support.fake_nvml import FakeGpu, FakeNvml


@pytest.fixture
def modules(monkeypatch):
    """Set what ``import pynvml`` and ``import amdsmi`` find; None makes the module missing."""

    def put(pynvml=None, amdsmi=None):
        monkeypatch.setitem(sys.modules, "pynvml", pynvml)
        monkeypatch.setitem(sys.modules, "amdsmi", amdsmi)

    return put


def test_nvidia_first(modules):
    modules(pynvml=FakeNvml([FakeGpu()]), amdsmi=FakeSmi())
    opened = open_devices(environment={})
    assert [device.info.kind for device in opened.devices] == ["cuda"]
    assert opened.drain_notices() == []


def test_a_missing_module_costs_one_warning_where_torch_sees_devices(modules):
    modules()
    opened = open_devices(torch_uuids=["a"], environment={})
    assert opened.devices == ()
    assert opened.drain_notices() == ["CUDA devices are not monitored: pynvml is missing; pip install nvidia-ml-py."]
    assert opened.drain_notices() == []


def test_a_machine_without_gpus_is_silent(modules):
    modules()
    assert open_devices(environment={}).drain_notices() == []
    modules(pynvml=FakeNvml([], init_error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    assert open_devices(environment={}).drain_notices() == []


def test_a_mismatch_costs_one_warning_even_where_torch_sees_nothing(modules):
    modules(pynvml=FakeNvml([], init_error=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))
    notices = open_devices(environment={}).drain_notices()
    assert len(notices) == 1
    assert "different versions" in notices[0]


def test_amd_when_nvml_is_not_there(modules):
    modules(amdsmi=FakeSmi(2))
    assert [device.info.kind for device in open_devices(environment={}).devices] == ["rocm", "rocm"]


@pytest.mark.parametrize("nvml", [None, FakeNvml([], init_error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)])
def test_a_machine_of_amds_is_not_told_that_it_has_no_nvml(modules, nvml):
    modules(pynvml=nvml, amdsmi=FakeSmi(2))
    opened = open_devices(torch_uuids=["a", "b"], environment={})
    assert len(opened.devices) == 2
    assert opened.drain_notices() == []


def test_a_folder_that_is_taken_for_a_module_is_a_missing_one(modules):
    modules(pynvml=ModuleType("pynvml"), amdsmi=ModuleType("amdsmi"))
    opened = open_devices(torch_uuids=["a"], environment={})
    assert opened.devices == ()
    assert opened.drain_notices() == ["CUDA devices are not monitored: pynvml is missing; pip install nvidia-ml-py."]
    assert open_devices(environment={}).drain_notices() == []


def test_a_driver_that_cannot_count_its_devices_says_so_once(modules):
    nvml = FakeNvml([FakeGpu()])
    nvml.nvmlDeviceGetCount = lambda: nvml._called(FakeGpu(faults={"*": pynvml.NVML_ERROR_UNKNOWN}), "count", 1)
    modules(pynvml=nvml)
    assert open_devices(environment={}).drain_notices() == [
        "NVML: device count cannot be read (Unknown Error); it is reported as missing from here on."
    ]


def test_an_apple_gpu_that_fails_is_missing_and_warned_about_once(modules):
    def gone():
        raise RuntimeError("the device is gone")

    modules()
    mps = SimpleNamespace(driver_allocated_memory=gone, current_allocated_memory=lambda: 3)
    opened = open_devices(torch_mps=mps, environment={})
    readings = [opened.devices[0].read() for _ in range(6)]
    assert {(reading.memory_used_bytes, reading.process_memory_bytes) for reading in readings} == {(None, 3.0)}
    assert len(opened.drain_notices()) == 1


def test_mps_last(modules):
    modules()
    mps = SimpleNamespace(driver_allocated_memory=lambda: 8, current_allocated_memory=lambda: 3)
    opened = open_devices(torch_mps=mps, environment={})
    assert opened.devices[0].read().process_memory_bytes == 3.0
    assert opened.trust[0].judge(None, working=False) is None


def test_the_mask_of_the_environment_is_honoured(modules):
    modules(pynvml=FakeNvml([FakeGpu(uuid="GPU-a0"), FakeGpu(uuid="GPU-b0")]))
    opened = open_devices(environment={"CUDA_VISIBLE_DEVICES": "1"})
    assert [(device.info.index, device.info.uuid) for device in opened.devices] == [(0, "GPU-b0")]


def test_under_wsl_a_zero_is_never_idle(modules, tmp_path):
    version = tmp_path / "version"
    version.write_text("Linux version 5.15.167.4-microsoft-standard-WSL2")
    modules(pynvml=FakeNvml([FakeGpu(use=0)]))
    wsl = open_devices(environment={}, proc_version=str(version))
    metal = open_devices(environment={}, proc_version=str(tmp_path / "none"))
    assert wsl.trust[0].judge(0.0, working=False) is None
    assert metal.trust[0].judge(0.0, working=False) == 0.0


def test_the_real_machine_is_opened_and_closed():
    opened = open_devices()
    assert len(opened.trust) == len(opened.devices)
    opened.close()
