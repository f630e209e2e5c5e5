import json
import os
import time

import pytest
import torch
from transformers import Trainer, TrainingArguments

from hf_trainplus.callbacks._settings import settings_of
from hf_trainplus.callbacks.diagnosis import DiagnosisCallback
from hf_trainplus.callbacks.gpu_monitor import GPUMonitorCallback
from hf_trainplus.callbacks.memory_leak import MemoryLeakCallback
from hf_trainplus.callbacks.step_clock import StepClockCallback
from hf_trainplus.monitor.diagnosis.rules import DataBoundRule, EvaluationBoundRule
from hf_trainplus.training_args import PlusTrainingArguments
from tests.support import tiny


class SlowRows(torch.utils.data.Dataset):
    def __init__(self, rows, seconds):
        self.rows, self.seconds = rows, seconds

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if self.seconds:  # even a sleep of nothing gives the processor away
            time.sleep(self.seconds)
        return self.rows[index]


def make(folder, callback, clock, *extra, seconds=0.0, **options):
    args = TrainingArguments(
        **tiny.quiet(folder, **{"max_steps": 10, "per_device_train_batch_size": 2, "logging_steps": 5, **options})
    )
    trainer = Trainer(
        tiny.bert(),
        args,
        train_dataset=SlowRows(tiny.rows(24), seconds),
        eval_dataset=tiny.rows(4),
        data_collator=tiny.PaddingCollator(),
        callbacks=[callback, *extra],
    )
    clock.attach(trainer)
    return trainer


RULES = [DataBoundRule(share=0.1), EvaluationBoundRule(share=0.9)]
# 16 rows of 20 ms: on a busy machine too the wait is no small share of a step
SLOW = {"seconds": 0.02, "per_device_train_batch_size": 16, "max_steps": 7}


def test_a_dataset_that_sleeps_20_ms_a_row_is_told_once_with_what_to_do(tmp_path, warned):
    clock = StepClockCallback()
    make(tmp_path, DiagnosisCallback(clock, rules=RULES, at_step=6), clock, **SLOW).train()
    assert len(warned) == 1
    assert warned[0].startswith("diagnosis at step 6:\ndata_bound: ")
    assert "% of each step waits for data. Next: dataloader_num_workers 0 -> " in warned[0]
    verdicts = json.loads((tmp_path / "trainplus/diagnosis.json").read_text())
    assert {verdict["rule"]: verdict["outcome"] for verdict in verdicts} == {
        "data_bound": "found",
        "evaluation_bound": "clear",
    }


def test_a_healthy_run_is_silent(tmp_path, warned):
    clock = StepClockCallback()
    trainer = make(tmp_path, DiagnosisCallback(clock, rules=RULES), clock)
    trainer.model.bert.register_forward_pre_hook(lambda *_: time.sleep(0.05))
    trainer.train()
    assert warned == []


def test_a_resumed_run_is_judged_after_as_many_steps_of_its_own(tmp_path, warned):
    clock = StepClockCallback()
    options = {"save_strategy": "steps", "save_steps": 8, "max_steps": 8}
    make(tmp_path, DiagnosisCallback(clock, rules=RULES, at_step=100), clock, **options).train()
    warned.clear()
    clock = StepClockCallback()
    diagnosis = DiagnosisCallback(clock, rules=RULES, at_step=6)
    trainer = make(tmp_path, diagnosis, clock, **{**SLOW, "max_steps": 16, "per_device_train_batch_size": 2})
    trainer.train_dataset.seconds = 0.1
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert [text.partition(":")[0] for text in warned] == ["diagnosis at step 14"]


def test_the_first_evaluation_is_a_decision_point(tmp_path, warned):
    clock = StepClockCallback()
    options = {"eval_strategy": "steps", "eval_steps": 6, **SLOW}
    make(tmp_path, DiagnosisCallback(clock, rules=RULES), clock, **options).train()
    assert warned[0].startswith("diagnosis at step 6:")


def test_all_records_are_read_and_all_rules_checked(tmp_path):
    clock, monitor, memory = StepClockCallback(), GPUMonitorCallback(0.05), MemoryLeakCallback(every_steps=None)
    diagnosis = DiagnosisCallback(clock, monitor, memory)
    trainer = make(tmp_path, diagnosis, clock, monitor, memory)
    trainer.train()
    evidence = diagnosis.evidence(trainer.args, trainer.state)
    assert evidence.steps == 10
    assert evidence.settings.per_device_train_batch_size == 2
    assert len(evidence.train_loss) == 2
    assert len(json.loads((tmp_path / "trainplus/diagnosis.json").read_text())) == 18


def test_without_other_callbacks_the_history_alone_is_judged(tmp_path):
    diagnosis = DiagnosisCallback()
    trainer = make(tmp_path, diagnosis, StepClockCallback(log=False), max_steps=2)
    outcomes = {verdict.rule: verdict.outcome for verdict in diagnosis.verdicts(trainer.args, trainer.state)}
    assert outcomes["data_bound"] == "unknown"
    assert "found" not in outcomes.values()


def test_wrong_use():
    with pytest.raises(ValueError, match="at_step=0"):
        DiagnosisCallback(at_step=0)


def test_the_cores_that_a_job_was_given_count_not_those_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    assert settings_of(TrainingArguments(**tiny.quiet(tmp_path)))["cpus_per_process"] == 6
    assert settings_of(TrainingArguments(**tiny.quiet(tmp_path)))["eval_confidence"] is None
    assert settings_of(PlusTrainingArguments(**tiny.quiet(tmp_path), eval_confidence=0.9))["eval_confidence"] == 0.9
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert settings_of(TrainingArguments(**tiny.quiet(tmp_path)))["cpus_per_process"] == 1
