import tracemalloc

import numpy as np
import pytest

from hf_trainplus.monitor.leaks import MemoryPoint, judge_memory, read_point

MIB = 1024.0**2


def points(values, *, kind="host_bytes", batches=None):
    sizes = [None] * len(values) if batches is None else batches
    return [
        MemoryPoint(10 * place, **{kind: float(value)}, largest_batch=size)
        for place, (value, size) in enumerate(zip(values, sizes, strict=True))
    ]


def noise(n, scale=0.3, seed=0):
    return 1000 * MIB + np.random.default_rng(seed).normal(0, scale, n) * MIB


@pytest.mark.parametrize("kind", ["host_bytes", "device_allocated_bytes"])
def test_a_leak_is_found_with_its_slope(kind):
    verdict = judge_memory(points(noise(14) + 2 * MIB * np.arange(14), kind=kind), kind)
    assert verdict.cause == "leak"
    assert verdict.slope.low < 2 * MIB < verdict.slope.high
    assert verdict.slope.value == pytest.approx(2 * MIB, rel=0.15)
    assert "it leaks" in verdict.tell("evaluation")


def test_healthy_memory_is_no_leak_whatever_the_noise():
    false_alarms = sum(
        judge_memory(points(noise(16, seed=seed, scale=2)), "host_bytes").cause == "leak" for seed in range(300)
    )
    # the interval's lower end at 95 % and the growth of both halves: far below one in forty
    assert false_alarms <= 4


def test_warm_up_is_no_leak():
    values = 1000 * MIB + 200 * MIB * (1 - np.exp(-np.arange(20) / 2.0))
    assert judge_memory(points(values), "host_bytes").cause == "none"


def test_one_step_up_is_no_leak():
    values = noise(16, scale=0.05)
    values[9:] += 64 * MIB
    assert judge_memory(points(values), "host_bytes").cause == "none"


def test_memory_given_back_now_and_then_is_no_leak():
    values = noise(20, scale=0.05) + np.tile([0, 4, 8, 12], 5) * MIB
    assert judge_memory(points(values), "host_bytes").cause == "none"


def test_longer_batches_are_no_leak():
    sizes = np.asarray([100, 100, 200, 200, 300, 300, 400, 400, 500, 500, 600, 600, 700, 700], dtype=float)
    values = 1000 * MIB + sizes * MIB / 10 + noise(14, scale=0.01) - 1000 * MIB
    assert judge_memory(points(values, batches=sizes.tolist()), "host_bytes").cause == "longer_batches"
    assert judge_memory(points(values), "host_bytes").cause == "leak", "without the batches nothing tells them apart"


def test_a_leak_beside_longer_batches_is_still_a_leak():
    sizes = np.repeat([100.0, 200.0, 300.0, 400.0], 4)
    values = noise(16, scale=0.02) + 3 * MIB * np.arange(16) + sizes * MIB / 50
    assert judge_memory(points(values, batches=sizes.tolist()), "host_bytes").cause == "leak"


def test_fragmentation_is_told_apart_from_a_leak():
    steady, growing = noise(14, scale=0.01), noise(14, scale=0.01) + 20 * MIB * np.arange(14)
    series = [
        MemoryPoint(place, device_allocated_bytes=float(a), device_reserved_bytes=float(b))
        for place, (a, b) in enumerate(zip(steady, growing, strict=True))
    ]
    assert judge_memory(series, "device_allocated_bytes").cause == "none"
    verdict = judge_memory(series, "unused_bytes")
    assert verdict.cause == "fragmentation"
    assert "fragmentation, no leak" in verdict.tell("100 steps")


def test_growth_below_the_threshold_is_noise():
    values = noise(20, scale=0.0) + 0.1 * MIB * np.arange(20)
    assert judge_memory(points(values), "host_bytes").cause == "none"
    assert judge_memory(points(values), "host_bytes", least_growth_bytes=0.05 * MIB).cause == "leak"


def test_too_few_points_are_unknown():
    verdict = judge_memory(points(noise(7)), "host_bytes")
    assert (verdict.cause, verdict.points) == ("unknown", 5)
    assert "5 points are too few" in verdict.tell("evaluation")


def test_a_long_run_is_judged_by_its_newest_points():
    values = np.concatenate([noise(4000, scale=0.1), 1000 * MIB + 2 * MIB * np.arange(600)])
    tracemalloc.start()
    try:
        verdict = judge_memory(points(values), "host_bytes")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (verdict.cause, verdict.points) == ("leak", 500)
    assert peak < 24 * MIB  # all pairs of 4,600 points would take 500
    with pytest.raises(ValueError, match="most_points=5"):
        judge_memory([], "host_bytes", most_points=5)


def test_what_is_not_measured_is_unknown():
    assert judge_memory(points(noise(20)), "device_allocated_bytes").cause == "unknown"
    assert MemoryPoint(1, device_allocated_bytes=5.0).value("unused_bytes") is None


def test_wrong_input():
    with pytest.raises(ValueError, match="kind='gpu'"):
        judge_memory([], "gpu")
    with pytest.raises(ValueError, match="least_points=3"):
        judge_memory([], "host_bytes", least_points=3)


def test_a_point_reads_the_allocators_current_bytes():
    statistics = {"allocated_bytes.all.current": 7, "reserved_bytes.all.current": 9}
    point = read_point(5, resident=lambda: 3, device_statistics=lambda: statistics, largest_batch=8)
    assert point == MemoryPoint(5, 3.0, 7.0, 9.0, 8)
    assert point.value("unused_bytes") == 2.0
    assert read_point(5, resident=lambda: 3).device_allocated_bytes is None
