"""The step clock on a real CUDA device: what the device itself takes, and that nothing in a step waits for it.

`pytest -m gpu`; skipped where torch sees no CUDA device.
"""

import time

import pytest
import torch
from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

from hf_trainplus.callbacks.step_clock import StepClockCallback
from tests.support import tiny

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


@pytest.fixture
def one_device(monkeypatch):
    """Several devices in one process would be DataParallel, which is not what is tested."""
    monkeypatch.setattr(TrainingArguments, "n_gpu", property(lambda self: 1))


def arguments(folder, **options):
    return TrainingArguments(
        **{
            **tiny.quiet(folder, max_steps=12, logging_steps=4, per_device_train_batch_size=4),
            "use_cpu": False,
            **options,
        }
    )


def work(matrix):
    for _ in range(100):
        matrix @ matrix


def seconds_of_work(matrix):
    work(matrix)
    torch.cuda.synchronize()
    began = time.perf_counter()
    work(matrix)
    torch.cuda.synchronize()
    return time.perf_counter() - began


def test_device_time_of_a_step_is_that_of_its_kernels(tmp_path, one_device):
    matrix = torch.randn(4096, 4096, device="cuda")
    model, callback = tiny.bert(), StepClockCallback()
    model.register_forward_pre_hook(lambda *_: work(matrix))
    trainer = Trainer(model, arguments(tmp_path), train_dataset=tiny.rows(48), data_collator=tiny.PaddingCollator())
    callback.attach(trainer)
    trainer.train()
    known = seconds_of_work(matrix)
    logged = [entry for entry in trainer.state.log_history if "loss" in entry][-1]
    print(f"device {logged['time/device_step_seconds']:.4f} s a step, the matrices alone {known:.4f} s")
    # the model itself is tiny; the marks of the last step may not be passed when the log is written
    assert 0.7 * known < logged["time/device_step_seconds"] < 1.3 * known + 0.05
    summary = callback.summary()
    assert sum(value or 0.0 for value in summary["seconds"].values()) == pytest.approx(
        summary["total_seconds"], rel=0.01
    )
    assert summary["device_idle_share"] < 0.5  # the device has a queue of matrices when the host looks


def test_nothing_in_a_step_waits_for_the_device(tmp_path, one_device):
    callback, args = StepClockCallback(write_summary=False), arguments(tmp_path)
    state, control = TrainerState(), TrainerControl()
    batch = {"input_ids": torch.ones(4, 8, dtype=torch.int64, device="cuda")}
    callback.on_train_begin(args, state, control)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(1, 6):
            callback._counts.count(batch, "input_ids")
            callback.on_step_begin(args, state, control)
            callback.timer.look()
            callback.on_substep_end(args, state, control)
            callback.on_pre_optimizer_step(args, state, control)
            state.global_step = step
            callback.on_step_end(args, state, control)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    callback.on_train_end(args, state, control)
    assert callback.summary()["steps"] == 5
