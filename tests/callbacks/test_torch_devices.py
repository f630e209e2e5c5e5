"""Peaks are found by what the driver calls a device."""

import pytest

from hf_trainplus.callbacks._torch_devices import peak_flops_of_name


@pytest.mark.parametrize(
    ("name", "precision", "tflops"),
    [
        ("NVIDIA H200", "bf16", 989.5),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5),
        ("NVIDIA H100 PCIe", "bf16", 756.5),
        ("NVIDIA H100 NVL", "fp16", 835.5),
        ("NVIDIA GH200 480GB", "bf16", 989.5),
        ("NVIDIA B200", "bf16", 2250),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A100-PCIE-40GB", "fp16", 312),
        ("NVIDIA A10", "bf16", 125),
        ("NVIDIA L40S", "bf16", 362.05),
        ("NVIDIA L4", "bf16", 121),
        ("Tesla T4", "fp16", 65),
        ("Tesla T4", "bf16", None),
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("Tesla V100-PCIE-16GB", "fp16", 112),
        ("AMD Instinct MI300X", "bf16", 1307.4),
        ("NVIDIA A10G", "bf16", None),
        ("NVIDIA GeForce RTX 5090", "bf16", None),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "bf16", None),
    ],
)
def test_peaks_by_name(name, precision, tflops):
    found = peak_flops_of_name(name, precision)
    assert found == (None if tflops is None else pytest.approx(tflops * 1e12))
