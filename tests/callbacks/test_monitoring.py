import json

import pytest
from transformers import Trainer, TrainingArguments
from transformers.integrations import TensorBoardCallback

from hf_trainplus import GPUMonitorCallback, PlusTrainer, PlusTrainingArguments, StepClockCallback
from hf_trainplus.callbacks.monitoring import attach_monitoring
from tests.support import tiny


def make(folder):
    args = TrainingArguments(**tiny.quiet(folder, max_steps=4, logging_steps=2))
    return Trainer(tiny.bert(), args, train_dataset=tiny.rows(32), data_collator=tiny.PaddingCollator())


def test_by_default_the_clock_runs_and_the_logs_stay_as_they_are(tmp_path):
    trainer = make(tmp_path)
    monitoring = attach_monitoring(trainer)
    trainer.train()
    assert monitoring.gpu_monitor is None
    assert monitoring.diagnosis is None
    assert not [key for entry in trainer.state.log_history for key in entry if "/" in key]
    assert json.loads((tmp_path / "trainplus/step_clock.json").read_text())["steps"] == 4
    assert not (tmp_path / "trainplus/devices.json").exists()


@pytest.mark.parametrize("asked", [True, 0.01])
def test_with_gpu_monitor_devices_are_sampled_and_the_run_diagnosed(tmp_path, asked):
    trainer = make(tmp_path)
    monitoring = attach_monitoring(trainer, asked)
    trainer.train()
    assert monitoring.gpu_monitor.summary()["interval_seconds"] == float(asked)
    assert [entry for entry in trainer.state.log_history if "time/step_seconds" in entry]
    for name in ("step_clock", "devices", "diagnosis"):
        assert (tmp_path / f"trainplus/{name}.json").is_file()


def test_an_interval_of_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"interval=0\.0"):
        attach_monitoring(make(tmp_path), 0.0)


def make_plus(folder, callbacks=(), **options):
    args = PlusTrainingArguments(**tiny.quiet(folder, **{"max_steps": 4, "logging_steps": 2, **options}))
    return PlusTrainer(
        tiny.bert(),
        args,
        train_dataset=tiny.rows(32),
        data_collator=tiny.PaddingCollator(),
        callbacks=list(callbacks),
    )


def kinds(trainer):
    return [type(one).__name__ for one in trainer.callback_handler.callbacks]


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("later", [False, True])
def test_under_plus_trainer_a_monitor_of_the_users_reaches_the_logs(tmp_path, asked, later):
    monitor = GPUMonitorCallback(0.01)
    trainer = make_plus(tmp_path, [] if later else [monitor], gpu_monitor=asked)
    if later:
        trainer.add_callback(monitor)
    assert monitor.attached
    assert kinds(trainer).count("GPUMonitorCallback") == 1 + (asked and later)
    trainer.train()
    assert [entry for entry in trainer.state.log_history if "host/process_memory_gib" in entry]
    assert not (tmp_path / "trainplus/devices.jsonl").exists()


def test_under_plus_trainer_a_clock_of_the_users_is_the_only_one_and_logs(tmp_path):
    clock = StepClockCallback(peak_flops=1e12)
    trainer = make_plus(tmp_path, [clock])
    assert kinds(trainer).count("StepClockCallback") == 1
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert all(entry["speed/model_flops_utilization_percent"] > 0 for entry in logged)


def test_a_tracker_that_is_added_later_is_guarded_too(tmp_path):
    class Board(TensorBoardCallback):
        def __init__(self):
            self.logs = 0

        def on_train_begin(self, *args, **kwargs):
            """Open nothing."""

        def on_log(self, *args, **kwargs):
            self.logs += 1
            raise ConnectionError("the server is gone")

    board = Board()
    trainer = make_plus(tmp_path)
    trainer.add_callback(board)
    trainer.train()
    assert trainer.state.global_step == 4
    assert board.logs == 1


def test_a_callback_of_another_trainer_is_refused(tmp_path):
    monitor = GPUMonitorCallback()
    make_plus(tmp_path / "a", [monitor])
    with pytest.raises(ValueError, match="make one for each trainer"):
        make_plus(tmp_path / "b", [monitor])
