"""From operations to hours, energy and money."""

import pytest

from hf_trainplus.budget.costs.hardware import Hardware


def test_hours_of_the_known_example():
    hardware = Hardware(peak_tflops=312, utilisation=0.4)
    assert hardware.device_hours(3.15e23) == pytest.approx(7.0e5, rel=0.005)
    assert hardware.device_hours(3.5e17) == pytest.approx(0.78, abs=0.005)


def test_more_devices_take_less_time_and_by_the_efficiency_more_hours():
    one = Hardware("h100-sxm")
    eight = Hardware("h100-sxm", devices=8)
    poor = Hardware("h100-sxm", devices=8, scaling_efficiency=0.8)
    assert eight.seconds(1e18) == pytest.approx(one.seconds(1e18) / 8)
    assert eight.device_hours(1e18) == pytest.approx(one.device_hours(1e18))
    assert poor.device_hours(1e18) == pytest.approx(one.device_hours(1e18) / 0.8)


def test_a_given_peak_overrides_the_table_and_stands_in_for_it():
    assert Hardware("h100-sxm", peak_tflops=100, utilisation=1).flops_per_second() == 1e14
    unknown = Hardware("my-chip", peak_tflops=100, utilisation=1)
    assert unknown.flops_per_second() == 1e14
    assert unknown.table_entry() is None
    assert unknown.energy_kwh(1.0) is None


def test_energy_and_money_need_power_and_price():
    hardware = Hardware("l4", usd_per_device_hour=0.5)
    assert (hardware.energy_kwh(10), hardware.usd(10)) == (0.72, 5.0)
    assert Hardware("l4", watts_per_device=50).energy_kwh(10) == 0.5
    assert Hardware("l4").usd(10) is None
    assert Hardware(peak_tflops=1).energy_kwh(10) is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "no device is given. Set device='a100-sxm-80gb' .*--peak-tflops"),
        ({"device": "h300"}, "speed is not guessed"),
        ({"device": "t4"}, "t4 has no bf16 matrix unit"),
        ({"peak_tflops": 0}, "peak_tflops=0; allowed are finite numbers above 0"),
        ({"peak_tflops": 1, "precision": "int8"}, "precision='int8'; allowed: bf16, fp16, fp32"),
        ({"peak_tflops": 1, "devices": 0}, "devices=0; allowed are integers >= 1"),
        ({"peak_tflops": 1, "utilisation": 40}, "utilisation=40; allowed is a share above 0 and at most 1"),
        ({"peak_tflops": 1, "devices": 2, "scaling_efficiency": 0}, "scaling_efficiency=0"),
        ({"peak_tflops": 1, "scaling_efficiency": 0.9}, "one device scales by 1. Set devices"),
        ({"peak_tflops": 1, "usd_per_device_hour": -1}, "usd_per_device_hour=-1"),
        ({"peak_tflops": 1, "watts_per_device": 0}, "watts_per_device=0"),
        ({"peak_tflops": float("inf")}, "peak_tflops=inf; allowed are finite"),
        ({"peak_tflops": 1, "watts_per_device": float("inf")}, "watts_per_device=inf; allowed are finite"),
        ({"peak_tflops": 1, "usd_per_device_hour": float("nan")}, "usd_per_device_hour=nan; allowed are finite"),
    ],
)
def test_wrong_hardware_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Hardware(**wrong)
