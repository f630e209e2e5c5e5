"""On a real NVIDIA device: what NVML says against nvidia-smi, device time against a known workload, memory that stays.

`pytest -m gpu`; skipped where torch sees no CUDA device.
"""

import gc
import subprocess
import threading
import time

import pytest
import torch

from hf_trainplus.callbacks._torch_devices import peak_flops_of_name, torch_cuda_uuids
from hf_trainplus.monitor.device_timer import DeviceTimer
from hf_trainplus.monitor.devices import GIB, open_devices
from hf_trainplus.monitor.leaks import judge_memory, read_point
from hf_trainplus.monitor.throughput import Counters, measure_throughput

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


@pytest.fixture
def opened():
    torch.zeros(1, device="cuda")
    found = open_devices(torch_uuids=torch_cuda_uuids())
    yield found
    found.close()


def nvidia_smi(uuid, fields):
    command = ["nvidia-smi", f"--id={uuid}", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [None if "N/A" in value or "Not" in value else float(value) for value in answer.stdout.split(",")]


def test_every_device_of_torch_is_matched_by_its_uuid(opened):
    assert [device.info.index for device in opened.devices] == list(range(torch.cuda.device_count()))
    assert {device.info.matched_by for device in opened.devices} == {"torch uuid"}
    assert opened.drain_notices() == []


def test_memory_temperature_and_clocks_are_nvidia_smis(opened):
    held = torch.zeros(int(2 * GIB / 4), device="cuda")
    device = opened.devices[0]
    reading = device.read()
    used, total, celsius = nvidia_smi(device.info.uuid, "memory.used,memory.total,temperature.gpu")
    assert reading.memory_total_bytes / 1024**2 == pytest.approx(total, rel=0.01)
    # nvidia-smi of newer drivers leaves the driver's reserve out
    assert reading.memory_used_bytes / 1024**2 == pytest.approx(used, abs=1500)
    assert reading.temperature_celsius == pytest.approx(celsius, abs=5)
    assert held.numel() > 0


@pytest.fixture
def loaded():
    """Keep the device busy in the background, so that what it draws has settled."""
    done = threading.Event()

    def work():
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        while not done.is_set():
            for _ in range(20):
                a @ a
            torch.cuda.synchronize()

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(3.0)
    yield
    done.set()
    thread.join(30)


def test_use_power_and_clock_under_load_are_nvidia_smis(opened, loaded):
    device = opened.devices[0]
    # nvidia-smi takes a moment: a reading before and one after
    before = device.read()
    use, watts, limit, mhz = nvidia_smi(
        device.info.uuid, "utilization.gpu,power.draw,enforced.power.limit,clocks.current.sm"
    )
    after = device.read()
    print(f"NVML {after.utilization_percent} %, {after.power_watts} W, {after.sm_clock_mhz} MHz")
    print(f"nvidia-smi {use} %, {watts} W, {mhz} MHz")
    assert after.power_limit_watts == pytest.approx(limit, rel=0.01)
    for name, told, margin in (
        ("utilization_percent", use, 15.0),
        ("power_watts", watts, 60.0),
        ("sm_clock_mhz", mhz, 150.0),
    ):
        low, high = sorted((getattr(before, name), getattr(after, name)))
        assert low - margin <= told <= high + margin, name


def test_energy_is_power_over_time(opened, loaded):
    device = opened.devices[0]
    first, began = device.read(), time.monotonic()
    if first.energy_joules is None:
        pytest.skip("the device counts no energy")
    watts = []
    while time.monotonic() - began < 3.0:
        time.sleep(0.1)
        watts.append(device.read().power_watts)
    joules, seconds = device.read().energy_joules - first.energy_joules, time.monotonic() - began
    assert joules / seconds == pytest.approx(sum(watts) / len(watts), rel=0.2)


def matmuls(seconds, size=8192):
    a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    for _ in range(5):
        a @ a
    torch.cuda.synchronize()
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(20):
            a @ a
        count += 20
        torch.cuda.synchronize()
    return count * 2 * size**3, time.perf_counter() - began


def test_a_known_matrix_workload_has_a_credible_utilisation(opened):
    flops, seconds = matmuls(3.0)
    peak = peak_flops_of_name(torch.cuda.get_device_name(0), "bf16")
    if peak is None:
        pytest.skip("the device's peak is not in the table")
    rates = measure_throughput(Counters(flops=flops), seconds, peak_flops=peak)
    print(f"{rates.tflops_per_device:.0f} TFLOP/s, {rates.model_flops_utilization_percent:.1f} % of the peak")
    assert 30 < rates.model_flops_utilization_percent < 105
    assert opened.devices[0].read().utilization_percent > 50


def test_device_time_is_that_of_the_kernels():
    timer = DeviceTimer(lambda: torch.cuda.Event(enable_timing=True))
    a = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    began = time.perf_counter()
    timer.begin("forward_backward")
    for _ in range(200):
        a @ a
    timer.end()
    torch.cuda.synchronize()
    assert timer.collect()["forward_backward"] == pytest.approx(time.perf_counter() - began, rel=0.1)


def test_a_look_tells_an_idle_device_from_a_busy_one():
    idle, busy = (DeviceTimer(lambda: torch.cuda.Event(enable_timing=True)) for _ in range(2))
    a = torch.randn(4096, 4096, device="cuda")
    for _ in range(20):
        torch.cuda.synchronize()
        idle.look()
    for _ in range(20):
        for _ in range(20):
            a @ a
        busy.look()
    torch.cuda.synchronize()
    print(f"idle at {100 * idle.idle_share:.0f} % of the looks, under load at {100 * busy.idle_share:.0f} %")
    assert idle.idle_share > 0.9
    assert busy.idle_share < 0.1


def test_kept_tensors_are_a_leak_of_device_memory():
    kept, points = [], []
    for step in range(10):
        kept.append(torch.zeros(int(4 * 1024**2 / 4), device="cuda"))
        gc.collect()
        points.append(read_point(step, resident=lambda: 0.0, device_statistics=lambda: torch.cuda.memory_stats(0)))
    verdict = judge_memory(points, "device_allocated_bytes")
    assert verdict.cause == "leak"
    assert verdict.slope.value == pytest.approx(4 * 1024**2, rel=0.01)
    assert len(kept) == 10
