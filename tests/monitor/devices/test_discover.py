import sys
from types import SimpleNamespace

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
