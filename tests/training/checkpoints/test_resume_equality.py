"""A resumed run equals the one that nothing interrupted: weights, rows, learning rate, metrics, meters and logs."""

import pytest
from transformers import Trainer, TrainingArguments

from hf_trainplus import BudgetCallback, PatienceCallback, PlusTrainer
from hf_trainplus.training.checkpoints.record import RECORDS
from tests.support import resume_runs as runs
from tests.support import tiny
from tests.support.launch import ROOT, torchrun

# in the middle of an epoch (8 steps long without accumulation), between a log and a save, at its end, after the last
STEPS = {
    "full": (1, 5, 8, 10),
    "accumulation": (3, 4, 7),
    "subset": (3, 10),
    "race": (1, 5, 10),
    "adaptive": (5, 10),
    "patience": (3, 4, 6),
    "plateau": (5,),
    "epochs": (5, 8, 16),
    "meters": (7, 10),
    "logs_before_saves": (5, 10),
    "greatest_step_in_mid_epoch": (3, 5),
}


@pytest.mark.parametrize("case", runs.CASES)
def test_one_process(case, tmp_path):
    whole, found = runs.compare(case, tmp_path, STEPS[case])
    assert found == {step: [] for step in STEPS[case]}
    assert sum("loss" in entry for entry in whole["logs"]) >= 1
    assert sum("eval_loss" in entry for entry in whole["logs"]) >= 1


def test_a_difference_is_told(tmp_path):
    trainer = runs.make(tmp_path / "a", "subset")
    whole = runs.outcome(trainer, trainer.train())
    other = runs.make(tmp_path / "b", "subset", learning_rate=1e-3)
    found = runs.differences(whole, runs.outcome(other, other.train()))
    assert {"logs", "train_loss"} <= set(found)
    assert any("weight" in name for name in found)


def test_the_patience_case_stops_early_and_the_stopped_run_takes_no_step(tmp_path):
    whole, found = runs.compare("patience", tmp_path, (6,))
    assert (whole["steps"], found) == (6, {6: []})


@pytest.mark.slow
@pytest.mark.distributed
def test_two_ranks(tmp_path):
    done = torchrun(ROOT / "tests/support/resume_runs.py", tmp_path, timeout=90)
    lines = [line for line in done.stdout.splitlines() if line.split(" ")[0] in runs.RANK_CASES]
    assert lines == [f"{case} {step} [[], []]" for case, steps in runs.RANK_CASES.items() for step in steps]


def plain(folder, trainer_class=Trainer, arguments_class=TrainingArguments, callbacks=(), **options):
    options = {**runs.EVERY_STEP, "logging_steps": 4, "eval_strategy": "no", **options}
    return trainer_class(
        tiny.bert(dropout=0.1),
        arguments_class(**tiny.quiet(folder, **options)),
        train_dataset=tiny.rows(15),
        eval_dataset=tiny.rows(6),
        data_collator=tiny.PaddingCollator(),
        callbacks=list(callbacks),
    )


@pytest.mark.parametrize(("first", "second"), [(Trainer, PlusTrainer), (PlusTrainer, Trainer)])
def test_stock_and_plus_resume_from_each_other(first, second, tmp_path):
    whole = plain(tmp_path / "whole")
    whole.train()
    plain(tmp_path / "run", first, max_steps=6, lr_scheduler_type="constant").train()
    straight = plain(tmp_path / "straight", lr_scheduler_type="constant")
    straight.train()
    resumed = plain(tmp_path / "run", second, lr_scheduler_type="constant")
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 10
    for name, value in straight.model.state_dict().items():
        assert value.equal(resumed.model.state_dict()[name]), name


def test_a_checkpoint_without_its_record_resumes_as_stock_does(tmp_path):
    """Step 6 lies between the logs of steps 4 and 8: without the running loss the mean is of two steps."""
    whole = plain(tmp_path / "run", PlusTrainer)
    whole.train()
    (tmp_path / "run" / RECORDS / "checkpoint-6.json").unlink()
    stock = plain(tmp_path / "stock")
    stock.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-6"))
    plus = plain(tmp_path / "plus", PlusTrainer)
    plus.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-6"))
    assert runs.logs(plus) == runs.logs(stock)
    assert runs.logs(plus) != runs.logs(whole)


@pytest.mark.parametrize("trainer_class", [Trainer, PlusTrainer])
def test_callbacks_may_be_added_on_a_resume(trainer_class, tmp_path):
    plain(tmp_path, trainer_class, max_steps=4).train()
    added = [PatienceCallback(5, metric="loss"), BudgetCallback("max_steps=100", stop_signals=None)]
    resumed = plain(tmp_path, PlusTrainer, callbacks=added, eval_strategy="steps", eval_steps=2)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 10
    assert {"PatienceCallback", "BudgetCallback"} <= set(resumed.state.stateful_callbacks)


def test_a_finished_run_takes_no_step_in_the_middle_of_an_epoch(tmp_path):
    """Upstream takes one more there."""
    plain(tmp_path, PlusTrainer, max_steps=5).train()
    again = plain(tmp_path, PlusTrainer, max_steps=5)
    before = {name: value.clone() for name, value in again.model.state_dict().items()}
    output = again.train(resume_from_checkpoint=True)
    assert output.global_step == 5
    assert [entry["step"] for entry in again.state.log_history if "train_runtime" in entry] == [5]
    assert not (tmp_path / "checkpoint-6").exists()
    assert any(not value.equal(before[name]) for name, value in again.model.state_dict().items())
