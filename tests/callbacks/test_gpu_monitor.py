import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from hf_trainplus.callbacks.gpu_monitor import GPUMonitorCallback
from tests.support import tiny
from tests.support.fake_devices import FakeDevice, opened
from tests.support.launch import ROOT, environment

GIB = 1024.0**3


class Slow(TrainerCallback):
    """Gives the sampler time at each step and each evaluation batch."""

    def on_step_end(self, *args, **kwargs):
        time.sleep(0.03)

    on_prediction_step = on_pre_optimizer_step = on_step_end


class Tracker(TrainerCallback):
    def __init__(self):
        self.seen = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.seen.append((state.global_step, dict(logs)))


def device(index=0, **values):
    values = {"utilization_percent": 60.0, "memory_used_bytes": 4 * GIB, "power_watts": 250.0, **values}
    return FakeDevice(index, **values)


def monitor(devices=None, **options):
    devices = opened(device()) if devices is None else devices
    return GPUMonitorCallback(0.01, open_with=lambda: devices, **options)


def make(folder, callback, *, attach, extra=(), **options):
    args = TrainingArguments(
        **tiny.quiet(folder, **{"max_steps": 6, "per_device_train_batch_size": 4, "logging_steps": 3, **options})
    )
    trainer = Trainer(
        tiny.bert(dropout=0.1),
        args,
        train_dataset=tiny.rows(24),
        eval_dataset=tiny.rows(16),
        data_collator=tiny.PaddingCollator(),
        callbacks=[*([] if attach else [callback]), Slow(), *extra],
    )
    if attach:
        callback.attach(trainer)
    return trainer


def sampling_threads():
    return [thread for thread in threading.enumerate() if thread.name == "trainplus-sampler"]


def test_attached_keys_reach_trackers_and_the_history_at_the_trainers_own_steps(tmp_path):
    tracker, callback = Tracker(), monitor()
    trainer = make(tmp_path, callback, attach=True, extra=[tracker], eval_strategy="steps", eval_steps=3)
    trainer.train()
    training = [(step, logs) for step, logs in tracker.seen if "loss" in logs]
    assert [step for step, _ in training] == [3, 6]
    for _, logs in training:
        assert logs["gpu0/utilization_percent"] == pytest.approx(60.0)
        assert logs["gpu0/power_watts"] == pytest.approx(250.0)
        assert logs["gpu0/memory_used_gib_max"] == pytest.approx(4.0)
        assert logs["host/process_memory_gib"] > 0
        assert logs["monitor/cpu_percent"] > 0
    assert training[1][1]["gpu0/evaluation/utilization_percent"] == pytest.approx(60.0)
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert all(entry["gpu0/power_watts"] == pytest.approx(250.0) for entry in history)
    assert not [logs for _, logs in tracker.seen if "loss" not in logs and any("gpu0" in key for key in logs)]


def test_unattached_it_keeps_a_file_and_a_summary_and_leaves_logs_alone(tmp_path):
    tracker = Tracker()
    trainer = make(tmp_path, monitor(), attach=False, extra=[tracker])
    trainer.train()
    assert not [key for _, logs in tracker.seen for key in logs if "/" in key]
    lines = [json.loads(line) for line in (tmp_path / "trainplus/devices.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [3]  # at most a line in ten seconds
    assert lines[0]["gpu0/power_watts"] == pytest.approx(250.0)
    summary = json.loads((tmp_path / "trainplus/devices.json").read_text())
    assert summary["devices"][0]["uuid"] == "GPU-0"
    assert summary["devices"][0]["utilization"] == "measured"
    assert summary["statistics"]["gpu0/power_watts"]["train_step"]["mean"] == pytest.approx(250.0)
    assert summary["samples"] > 5
    assert summary["own_cpu_percent"] > 0


def test_phases_follow_the_run(tmp_path):
    callback = monitor()
    make(
        tmp_path, callback, attach=False, eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2
    ).train()
    phases = callback.summary()["statistics"]["gpu0/power_watts"]
    assert {"train_step", "waiting", "evaluation", "saving"} <= set(phases)
    assert phases["evaluation"]["seconds"] > 0.15  # three evaluations of two batches at 30 ms
    assert phases["train_step"]["seconds"] > 0.15


def test_a_gpu_that_reads_zero_for_ever_is_not_measurable(tmp_path):
    devices = opened(device(utilization_percent=0.0), proof=3)
    callback = monitor(devices)
    trainer = make(tmp_path, callback, attach=True)
    trainer.train()
    assert callback.summary()["devices"][0]["utilization"] == "not measurable"
    assert not [key for entry in trainer.state.log_history for key in entry if "utilization" in key]
    assert [entry["gpu0/power_watts"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("attach", [False, True])
def test_sampling_ends_with_training(tmp_path, attach):
    devices = opened(device())
    make(tmp_path, monitor(devices), attach=attach).train()
    assert sampling_threads() == []
    assert devices.source.closed


@pytest.mark.parametrize("attach", [False, True])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_sampling_ends_when_an_exception_ends_training(tmp_path, attach, error):
    class Boom(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 3:
                raise error("boom")

    callback = monitor()
    trainer = make(tmp_path, callback, attach=attach, extra=[Boom()])
    with pytest.raises(error, match="boom"):
        trainer.train()
    until = time.monotonic() + 10
    while sampling_threads():
        assert time.monotonic() < until, "the sampler outlived training"
        time.sleep(0.01)
    assert json.loads((tmp_path / "trainplus/devices.json").read_text())["samples"] > 0
    assert callback._opened.source.closed


def test_a_second_run_samples_again(tmp_path):
    callback = monitor()
    trainer = make(tmp_path, callback, attach=False, max_steps=3)
    trainer.train()
    first = callback.sampler
    trainer.train()
    assert callback.sampler is not first
    assert callback.summary()["samples"] > 0
    assert sampling_threads() == []


def test_a_warning_comes_from_the_training_thread_once(tmp_path, monkeypatch):
    devices = opened(device())
    devices.source.notices.append("cuda:0: power_watts cannot be read")
    warned = []

    class Keep(logging.Handler):
        def emit(self, record):
            warned.append((record.getMessage(), threading.current_thread() is threading.main_thread()))

    handler = Keep()
    logger = logging.getLogger("hf_trainplus")
    logger.addHandler(handler)
    try:
        make(tmp_path, monitor(devices), attach=False).train()
    finally:
        logger.removeHandler(handler)
    assert warned == [("cuda:0: power_watts cannot be read", True)]


def test_training_is_bit_equal_with_and_without(tmp_path):
    plain = make(tmp_path / "without", Slow(), attach=False)
    plain.train()
    watched = make(tmp_path / "with", monitor(), attach=True)
    watched.train()
    ours = watched.model.state_dict()
    assert [name for name, value in plain.model.state_dict().items() if not torch.equal(value, ours[name])] == []


def test_on_the_cpu_no_gpu_is_opened(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    callback = GPUMonitorCallback(0.01)
    make(tmp_path, callback, attach=True).train()
    summary = callback.summary()
    assert summary["devices"] == []
    assert summary["statistics"]["host/process_memory_gib"]["all"]["mean"] > 0


def test_only_the_local_main_process_samples(tmp_path):
    callback = monitor()
    trainer = make(tmp_path, callback, attach=False, max_steps=2)
    trainer.state.is_local_process_zero = False
    args, state, control = trainer.args, trainer.state, trainer.control
    callback.on_train_begin(args, state, control)
    assert callback.sampler is None
    assert callback.summary() is None
    assert callback.take_log_values({"loss": 1.0}) == {}
    callback.on_train_end(args, state, control)


@pytest.mark.slow
def test_a_signal_that_kills_the_process_is_not_held_up(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        "import sys, time\n"
        "from tests.callbacks.test_gpu_monitor import make, monitor\n"
        f"trainer = make({str(tmp_path)!r}, monitor(), attach=False, max_steps=100000, logging_steps=2)\n"
        "trainer.train()\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            # the Trainer's first log tells that sampling has begun
            assert next(line for line in iter(process.stdout.readline, "") if "loss" in line)
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(timeout=20) == -signal.SIGTERM
        finally:
            process.kill()


@pytest.mark.slow
def test_an_exception_that_ends_the_process_leaves_the_summary(tmp_path):
    script = (
        "from tests.callbacks.test_gpu_monitor import Slow, make, monitor\n"
        "class Boom(Slow):\n"
        "    def on_log(self, args, state, control, **kwargs):\n"
        "        raise OSError('nobody catches this')\n"
        f"make({str(tmp_path)!r}, monitor(), attach=False, extra=[Boom()]).train()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith("OSError: nobody catches this\n")
    assert json.loads((tmp_path / "trainplus/devices.json").read_text())["samples"] > 0


def test_wrong_use():
    with pytest.raises(ValueError, match="interval=0"):
        GPUMonitorCallback(0)
    with pytest.raises(ValueError, match="interval=inf"):
        GPUMonitorCallback(float("inf"))
    with pytest.raises(TypeError, match="interval='fast' is no number"):
        GPUMonitorCallback("fast")


def test_one_callback_one_trainer(tmp_path):
    callback = monitor()
    make(tmp_path / "a", callback, attach=True)
    with pytest.raises(ValueError, match="make one for each trainer"):
        make(tmp_path / "b", callback, attach=True)
