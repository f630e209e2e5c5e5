"""An evaluation can be left between two batches, and then reports nothing."""

import json
import os
import signal
import time

import pytest
from transformers import TrainerCallback

from hf_trainplus import BudgetCallback, PlusTrainer, PlusTrainingArguments
from hf_trainplus.budget.stops import StopReason
from hf_trainplus.callbacks.stop_signals import StopSignalsCallback
from hf_trainplus.training.pending import MARKER, is_pending
from tests.support import tiny
from tests.support.launch import ROOT, torchrun


class At(TrainerCallback):
    """Acts in the second batch of the evaluation of a step."""

    def __init__(self, step, act):
        self.step, self.act, self.batches = step, act, 0

    def on_prediction_step(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.batches += 1
            if self.batches == 2:
                self.act()


def make(folder, compute_metrics=None, **options):
    arguments = {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 2, "learning_rate": 1e-2, **options}
    return PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(
            **tiny.quiet(folder, per_device_eval_batch_size=1, eval_tokens_per_batch=None, **arguments)
        ),
        train_dataset=tiny.rows(16),
        eval_dataset=tiny.rows(8),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=compute_metrics,
    )


def evaluated(trainer):
    return [entry["step"] for entry in trainer.state.log_history if "eval_loss" in entry]


def test_a_requested_stop_leaves_saves_and_is_resumed_with_the_evaluation(tmp_path):
    whole = make(tmp_path / "whole")
    whole.train()
    trainer = make(tmp_path / "left")
    leaving = At(4, trainer.request_stop)
    trainer.add_callback(leaving)
    trainer.train()
    assert leaving.batches == 2
    assert evaluated(trainer) == [2]
    assert trainer.state.global_step == 4
    folder = tmp_path / "left" / "checkpoint-4"
    assert is_pending(str(folder))
    resumed = make(tmp_path / "left")
    resumed.train(resume_from_checkpoint=str(folder))
    assert not (folder / MARKER).exists()
    assert evaluated(resumed) == [2, 4, 6]
    for name, value in whole.model.state_dict().items():
        assert value.equal(resumed.model.state_dict()[name])


def test_a_signal_leaves_an_evaluation(tmp_path):
    trainer = make(tmp_path, stop_signals="SIGUSR1")
    leaving = At(4, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    trainer.add_callback(leaving)
    trainer.train()
    assert leaving.batches in (2, 3)
    assert evaluated(trainer) == [2]
    assert (tmp_path / "checkpoint-4" / "model.safetensors").is_file()


# ---- reasons, and what a run that goes on makes up for ---------------------------------------------------------------


class SendAt(TrainerCallback):
    """Sends a signal to this process in the middle of a step."""

    def __init__(self, step):
        self.step = step

    def on_optimizer_step(self, args, state, control, **kwargs):
        if state.global_step == self.step - 1:
            os.kill(os.getpid(), signal.SIGUSR1)


class Slow(TrainerCallback):
    """A step takes a second of a clock of its own, and a batch of the evaluation of step ``at`` takes ``seconds``."""

    def __init__(self, at, seconds):
        self.now, self.at, self.seconds, self.steps = 0.0, at, seconds, 0

    def on_step_end(self, args, state, control, **kwargs):
        self.now += 1.0
        self.steps += 1

    def on_prediction_step(self, args, state, control, **kwargs):
        self.now += self.seconds if state.global_step == self.at else 0.01


def saved_reason(folder):
    state = json.loads((folder / "trainer_state.json").read_text())
    entries = state["stateful_callbacks"]
    owner = next(name for name in ("BudgetCallback", "StopSignalsCallback") if name in entries)
    return entries[owner]["attributes"]["saved"]["reason"]


def logs(trainer):
    timed = ("runtime", "per_second", "seconds")
    entries = [{key: value for key, value in entry.items() if not key.endswith(timed)} for entry in history(trainer)]
    return [entry for entry in entries if "train_loss" not in entry]


def history(trainer):
    return trainer.state.log_history


def budgeted(folder, budget, clock, **options):
    callback = BudgetCallback(
        budget, clock=lambda: clock.now, margin_seconds=0.5, count_from_process_start=False, **options
    )
    trainer = make(folder, max_steps=100)
    trainer.add_callback(clock)
    trainer.add_callback(callback)
    return trainer, callback


@pytest.mark.parametrize("budget", [None, "wall_clock=1h"])
def test_why_an_evaluation_was_left_is_recorded(budget, tmp_path):
    trainer = make(tmp_path, budget=budget)
    trainer.add_callback(At(4, lambda: os.kill(os.getpid(), signal.SIGUSR1)))
    trainer.train()
    watching = [one for one in trainer.callback_handler.callbacks if hasattr(one, "stop_reason")]
    assert [one.stop_reason for one in watching] == [StopReason.SIGNAL]
    assert isinstance(watching[0], StopSignalsCallback if budget is None else BudgetCallback)
    assert saved_reason(tmp_path / "checkpoint-4") == "signal"


@pytest.mark.parametrize("budget", [None, "wall_clock=1h"])
@pytest.mark.parametrize(
    "rhythm",
    [
        {"eval_steps": 2, "logging_steps": 3},
        {"eval_strategy": "epoch", "logging_strategy": "epoch", "max_steps": -1, "num_train_epochs": 2},
    ],
    ids=["steps", "epoch"],
)
def test_a_signal_at_any_step_is_not_seen_in_the_log_of_the_run_that_goes_on(rhythm, budget, tmp_path):
    saves = {"save_strategy": "steps", "save_steps": 100}
    options = {"budget": budget, "per_device_train_batch_size": 6, **saves, **rhythm}
    whole = make(tmp_path / "whole", **options)
    whole.train()
    assert whole.state.global_step == 6
    for step in (2, 3, 4, 6):
        folder = tmp_path / str(step)
        first = make(folder, **options)
        first.add_callback(SendAt(step))
        first.train()
        assert first.state.global_step == step
        assert step not in evaluated(first)
        resumed = make(folder, **options)
        resumed.train(resume_from_checkpoint=True)
        assert logs(resumed) == logs(whole)


def test_a_long_metric_call_is_left_by_an_exception(tmp_path):
    calls = []

    def metric(prediction):
        calls.append(time.monotonic())
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGUSR1)
            for _ in range(6000):
                time.sleep(0.01)
        return {"rows": len(prediction.label_ids)}

    trainer = make(tmp_path, stop_signals="SIGUSR1", compute_metrics=metric)
    trainer.train()
    assert time.monotonic() - calls[1] < 2.0
    assert evaluated(trainer) == [2]
    assert is_pending(str(tmp_path / "checkpoint-4"))
    assert saved_reason(tmp_path / "checkpoint-4") == "signal"
    resumed = make(tmp_path, stop_signals="SIGUSR1", compute_metrics=metric)
    resumed.train(resume_from_checkpoint=True)
    assert evaluated(resumed) == [2, 4, 6]


def test_a_spent_budget_leaves_an_evaluation_that_is_slower_than_it_was(tmp_path):
    clock = Slow(at=10, seconds=2.0)
    trainer, callback = budgeted(tmp_path, "wall_clock=20", clock)
    trainer.train()
    assert evaluated(trainer) == [2, 4, 6, 8]
    assert (callback.stop_reason, callback.stop_limit) == (StopReason.BUDGET_SPENT, "wall_clock")
    assert 15 < clock.now <= 20
    assert trainer.state.global_step == 10
    assert saved_reason(tmp_path / "checkpoint-10") == "budget_spent"
    assert is_pending(str(tmp_path / "checkpoint-10"))

    again, _ = budgeted(tmp_path, "wall_clock=20", later := Slow(at=0, seconds=0.0))
    again.train(resume_from_checkpoint=True)
    assert (later.steps, later.now, evaluated(again)) == (0, 0.0, [2, 4, 6, 8])
    raised, _ = budgeted(tmp_path, "wall_clock=25", Slow(at=0, seconds=0.0))
    raised.train(resume_from_checkpoint=True)
    assert evaluated(raised)[:6] == [2, 4, 6, 8, 10, 12]


def test_a_stop_file_that_appears_in_an_evaluation_leaves_it_and_one_from_before_does_not(tmp_path):
    stop = tmp_path / "STOP"
    trainer, callback = budgeted(tmp_path / "inside", None, Slow(at=4, seconds=1.5), stop_file=str(stop))
    trainer.add_callback(At(4, stop.touch))
    trainer.train()
    assert (evaluated(trainer), callback.stop_reason) == ([2], StopReason.STOP_FILE)
    assert is_pending(str(tmp_path / "inside" / "checkpoint-4"))

    stop.unlink()
    trainer, callback = budgeted(tmp_path / "before", None, Slow(at=0, seconds=0.0), stop_file=str(stop))

    class Touch(TrainerCallback):
        def on_optimizer_step(self, args, state, control, **kwargs):
            if state.global_step == 2:
                stop.touch()

    trainer.add_callback(Touch())
    trainer.train()
    assert (evaluated(trainer), callback.stop_reason) == ([2, 3], StopReason.STOP_FILE)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(("place", "budget", "batches"), [("batch", "none", 1), ("metrics", "wall_clock=1h", 4)])
def test_a_signal_that_reaches_one_rank_leaves_the_evaluation_of_all(place, budget, batches, tmp_path):
    done = torchrun(ROOT / "tests/support/stopped_two_ranks.py", tmp_path, place, budget)
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    expected = {"step": 4, "reason": "signal", "batches": batches, "evaluated": [2], "owed": True}
    assert json.loads(line[len("FOUND ") :]) == [expected] * 2
