import json
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest
import typer
from typer.testing import CliRunner

from hf_trainplus.cli import monitor as command
from hf_trainplus.cli._device_table import device_rows, live_view
from hf_trainplus.monitor.sampler import Sampler, device_facts
from tests.support.fake_devices import FakeDevice, opened
from tests.support.fake_nvml import FakeGpu, FakeNvml
from tests.support.launch import environment

GIB = 1024.0**3


@pytest.fixture
def app():
    app = typer.Typer()

    @app.callback()
    def main():
        """Stand in for the main command."""

    command.register(app)
    return app


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNvml([FakeGpu(uuid="GPU-a0", use=41), FakeGpu(uuid="GPU-b0", use=7)])
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def run(app, *arguments):
    return CliRunner().invoke(app, ["monitor", *arguments])


def test_json_is_a_line_a_sample(app, nvml):
    result = run(app, "--json", "--count", "3", "--interval", "0.01")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert len(lines) == 3
    assert [line["values"]["gpu0/utilization_percent"] for line in lines] == [41.0] * 3
    assert lines[0]["values"]["gpu1/utilization_percent"] == 7.0
    assert lines[0]["devices"][0]["uuid"] == "GPU-a0"
    assert "host/memory_used_gib" in lines[2]["values"]
    assert nvml.started == 0


def test_the_table_shows_devices_and_the_machine(app, nvml, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    result = run(app, "--count", "1")
    assert result.exit_code == 0, result.output
    for text in ("NVIDIA H200", "41 %", "2.0 / 140.0 GiB", "300 W", "55 °C", "1980 MHz", "cpu ", "disk free"):
        assert text in result.output, text


def test_without_a_terminal_every_sample_is_shown(app, nvml, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    uses = iter([11, 22, 33])
    monkeypatch.setattr(nvml, "nvmlDeviceGetUtilizationRates", lambda _: SimpleNamespace(gpu=next(uses)), raising=False)
    nvml.gpus = nvml.gpus[:1]
    output = run(app, "--count", "3", "--interval", "0.01").output
    assert [text in output for text in ("11 %", "22 %", "33 %")] == [True] * 3
    assert output.endswith("\n")


def test_the_masks_of_the_watched_job_count(app, nvml):
    job = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-b0"},
    )
    with job:
        try:
            result = run(app, "--json", "--count", "1", "--pid", str(job.pid))
        finally:
            job.stdin.close()
            job.wait(10)
    line = json.loads(result.output)
    assert [device["uuid"] for device in line["devices"]] == ["GPU-b0"]
    assert line["values"]["gpu0/utilization_percent"] == 7.0


def test_it_ends_with_the_watched_job(nvml):
    clock = [0.0]
    sampler = Sampler(opened(FakeDevice(0)), None, clock=lambda: clock[0])
    taken = []
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(10)
    for values in command.take_samples(
        sampler, interval=1.0, pid=gone.pid, clock=lambda: clock[0], sleep=lambda _: None
    ):
        taken.append(values)
    assert taken == []


def test_a_job_that_has_ended_and_waits_for_its_parent_is_over(nvml):
    sampler = Sampler(opened(FakeDevice(0)), None)
    with subprocess.Popen([sys.executable, "-c", ""]) as job:
        os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)  # it has ended and is not asked for
        assert psutil.pid_exists(job.pid)
        assert list(command.take_samples(sampler, interval=1.0, count=3, pid=job.pid, sleep=lambda _: None)) == []


def test_ctrl_c_ends_it_without_an_error():
    # a shell that starts the tests in the background has the signal ignored
    main = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    main += "from hf_trainplus.cli import main; sys.exit(main())"
    run_it = [sys.executable, "-c", main, "monitor", "--json", "--interval", "0.05"]
    with subprocess.Popen(
        run_it, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as shown:
        assert "unix_seconds" in json.loads(shown.stdout.readline())
        shown.send_signal(signal.SIGINT)
        _, errors = shown.communicate(timeout=20)
    assert (shown.returncode, errors) == (0, "")


def test_a_job_of_another_user_shows_all_devices(app, nvml, monkeypatch):
    def denied(self):
        raise psutil.AccessDenied(self.pid)

    monkeypatch.setattr(psutil.Process, "environ", denied)
    line = json.loads(run(app, "--json", "--count", "1", "--pid", str(os.getpid())).output)
    assert [device["uuid"] for device in line["devices"]] == ["GPU-a0", "GPU-b0"]


def test_what_the_machine_cannot_tell_is_a_notice_of_a_line(app, nvml, monkeypatch):
    def denied(*_):
        raise psutil.AccessDenied(1)

    monkeypatch.setattr(psutil, "virtual_memory", denied)
    lines = run(app, "--json", "--count", "4", "--interval", "0.01").output.splitlines()
    notices = [notice for line in lines for notice in json.loads(line).get("notices", [])]
    assert len(notices) == 1
    assert "host: memory cannot be read" in notices[0]


def test_the_schedule_is_absolute():
    clock, slept = [0.0], []

    def sleep(seconds):
        slept.append(round(seconds, 6))
        clock[0] += seconds

    sampler = Sampler(opened(FakeDevice(0)), None, clock=lambda: clock[0])
    for place, _ in enumerate(
        command.take_samples(sampler, interval=1.0, count=4, clock=lambda: clock[0], sleep=sleep)
    ):
        clock[0] += [0.25, 0.5, 1.5, 0.0][place]
    assert slept == [0.75, 0.5, 0.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--interval", "0"), "interval=0.0"),
        (("--interval", "inf"), "interval=inf"),
        (("--interval", "nan"), "interval=nan"),
        (("--count", "0"), "count=0"),
        (("--pid", "4194305"), "no such"),
    ],
)
def test_wrong_use_has_exit_code_two(app, arguments, message):
    result = run(app, *arguments)
    assert result.exit_code == 2
    assert re.sub(r"[\s│]", "", message) in re.sub(r"[\s│]", "", result.output)


def test_help_has_an_example(app):
    result = run(app, "--help")
    assert result.exit_code == 0
    assert "Example: trainplus monitor --pid" in result.output


def test_missing_values_are_a_dash_and_never_zero():
    rows = device_rows([{"index": 2, "name": None, "utilization": "unknown"}], {})
    assert rows == [("2", "-", "-", "-", "-", "-", "-", "-")]


def test_what_cannot_be_measured_is_said():
    rows = device_rows(
        [{"index": 0, "name": "A16", "utilization": "not measurable"}], {"gpu0/throttled_percent": 100.0}
    )
    assert rows[0][1] == "not measurable"
    assert rows[0][7] == "yes"


def test_a_machine_without_devices_is_shown():
    devices = opened()
    view = live_view(device_facts(devices), {"host/cpu_percent": 5.0}, ["a notice"])
    texts = [str(part) for part in view.renderables]
    assert texts[0] == "no device that can be monitored"
    assert texts[1].startswith("cpu 5 %")
    assert texts[2] == "a notice"
