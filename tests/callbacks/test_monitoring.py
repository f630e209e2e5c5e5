import json

import pytest
from transformers import Trainer, TrainingArguments

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
