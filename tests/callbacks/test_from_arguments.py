"""The callbacks that fields of PlusTrainingArguments ask for."""

import time

import pytest

from hf_trainplus import BudgetCallback, PlusTrainer, PlusTrainingArguments
from hf_trainplus.budget.stops import StopReason
from tests.support import tiny


def make(folder, **options):
    arguments = {"max_steps": 4, "save_strategy": "steps", "save_steps": 10, **options}
    return PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, **arguments)),
        train_dataset=tiny.rows(16),
        data_collator=tiny.PaddingCollator(),
    )


def budget_of(trainer):
    found = [one for one in trainer.callback_handler.callbacks if isinstance(one, BudgetCallback)]
    return found[0] if found else None


@pytest.mark.parametrize(
    ("seconds_from_now", "steps", "reason"), [(-10, 0, StopReason.DEADLINE), (3600, 4, StopReason.MAX_STEPS)]
)
def test_a_deadline_ends_the_run(seconds_from_now, steps, reason, tmp_path):
    trainer = make(tmp_path, deadline=time.time() + seconds_from_now)
    trainer.train()
    assert trainer.state.global_step == steps
    assert budget_of(trainer).stop_reason is reason


def test_slurms_deadline_counts_beside_the_given_one(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(time.time() - 10))
    trainer = make(tmp_path, deadline=time.time() + 3600)
    trainer.train()
    assert (trainer.state.global_step, budget_of(trainer).stop_reason) == (0, StopReason.DEADLINE)


def test_nobody_asked_nobody_stops(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(time.time() - 10))
    trainer = make(tmp_path)
    trainer.train()
    assert trainer.state.global_step == 4
    assert budget_of(trainer) is None


def test_a_process_of_a_staged_launch_watches_signals_by_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINPLUS_STAGE", "a")
    plan = {"stages": [{"name": "a", "budget": "max_steps=2"}]}
    assert budget_of(make(tmp_path, plan=plan)).options.stop_signals == "SIGTERM,SIGUSR1"
    assert budget_of(make(tmp_path, plan=plan, stop_signals="SIGHUP")).options.stop_signals == "SIGHUP"
    own = BudgetCallback(stop_signals="SIGUSR2")
    arguments = PlusTrainingArguments(**tiny.quiet(tmp_path, plan=plan, max_steps=4))
    trainer = PlusTrainer(tiny.bert(), arguments, train_dataset=tiny.rows(4), callbacks=[own])
    assert [one for one in trainer.callback_handler.callbacks if isinstance(one, BudgetCallback)] == [own]
