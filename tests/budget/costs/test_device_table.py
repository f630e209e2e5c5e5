"""The table of devices: found by the names that drivers use, never guessed."""

import pytest

from hf_trainplus.budget.costs.device_table import DEVICES, find_device


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA B200", "b200-sxm"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10", "a10"),
        ("Tesla V100-SXM2-16GB", "v100-sxm-16gb"),
        ("Tesla V100-PCIE-32GB", "v100-pcie-32gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_names_of_drivers(driver, name):
    assert find_device(driver).name == name


@pytest.mark.parametrize("name", DEVICES)
def test_names_of_the_table(name):
    assert find_device(name).name == name


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A10G",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA H200 NVL",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "gtx",
        "",
        "gpu",
    ],
)
def test_what_is_only_similar_is_unknown_and_asks_for_the_peak(name):
    with pytest.raises(ValueError, match="is not in the table, and its speed is not guessed.*--peak-tflops 123"):
        find_device(name)


@pytest.mark.parametrize(("name", "number"), [("a100", 4), ("NVIDIA H100", 3), ("v100", 4)])
def test_a_name_of_several_devices_lists_them(name, number):
    with pytest.raises(ValueError, match="is one of") as caught:
        find_device(name)
    assert str(caught.value).count(",") >= number - 1


def test_a_precision_that_the_device_lacks_is_an_error():
    with pytest.raises(ValueError, match="t4 has no bf16 matrix unit. Set precision='fp16' or give peak_tflops"):
        find_device("t4").peak_tflops("bf16")
    assert find_device("t4").peak_tflops("fp16") == 65


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.name)
def test_every_figure_has_a_source_and_a_plausible_size(device):
    assert device.source.split()[0] in ("NVIDIA", "AMD")
    assert 8 <= device.fp32 < device.fp16 <= 2500
    assert device.bf16 in (None, device.fp16)
    assert 16 <= device.memory_gb <= 192
    assert 300 <= device.bandwidth_gb_s <= 8000
    assert 70 <= device.board_watts <= 1000
