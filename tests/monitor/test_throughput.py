import pytest

from hf_trainplus.monitor.throughput import Counters, Throughput, measure_throughput


def test_after_a_resume_the_first_interval_has_the_right_speed():
    # a checkpoint brought 5 million tokens along; 1,000 more in 2 s of training is 500 a second
    before = Counters(examples=80_000, tokens=5_000_000, flops=9e18)
    after = Counters(examples=80_010, tokens=5_001_000, flops=9e18 + 4e9)
    rates = measure_throughput(after.minus(before), 2.0)
    assert rates == Throughput(5.0, 500.0, pytest.approx(0.002), None)


def test_utilisation_is_per_device():
    rates = measure_throughput(Counters(flops=8e15), 4.0, devices=4, peak_flops=1e15)
    assert rates.tflops_per_device == pytest.approx(500.0)
    assert rates.model_flops_utilization_percent == pytest.approx(50.0)


def test_what_is_not_counted_is_missing_and_never_zero():
    assert measure_throughput(Counters(), 1.0, peak_flops=1e12) == Throughput(None, None, None, None)
    assert measure_throughput(Counters(1, 1, 1), 0.0) == Throughput(None, None, None, None)
    assert Counters(1, None, 3).plus(Counters(1, 2, None)) == Counters(2, None, None)


@pytest.mark.parametrize("wrong", [{"devices": 0}, {"peak_flops": 0.0}, {"training_seconds": -1.0}])
def test_wrong_arguments(wrong):
    with pytest.raises(ValueError, match="allowed are devices >= 1"):
        measure_throughput(Counters(), **{"training_seconds": 1.0, **wrong})
