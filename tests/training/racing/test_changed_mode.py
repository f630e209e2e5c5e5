"""A run that raced and is resumed: in another mode, with another metric, or after it had stopped."""

import os
from contextlib import nullcontext

import pytest
from transformers import EarlyStoppingCallback, TrainerCallback

from hf_trainplus import PatienceCallback
from hf_trainplus.decisions.racing.costs import Costs
from tests.training.test_race import finished, make

SAVES = {"save_strategy": "steps", "save_steps": 3}


@pytest.fixture
def unmeasured(monkeypatch):
    """Runs that are timed apart may settle a candidate at another moment; these look at decisions alone."""
    monkeypatch.setattr(Costs, "_with", lambda costs, name, seconds: costs)


def resumed(folder, mode, *, step=6, **options):
    trainer = make(folder, mode, **SAVES, **options)
    trainer.train(resume_from_checkpoint=str(folder / f"checkpoint-{step}"))
    return trainer


@pytest.mark.parametrize("mode", ["full", "subset"])
def test_the_best_of_the_race_is_taken_over(mode, tmp_path):
    whole = finished(make(tmp_path / "whole", "full", **SAVES, max_steps=6, learning_rate=5e-3))
    finished(make(tmp_path / "part", "race", **SAVES, max_steps=6, learning_rate=5e-3))
    size = {"eval_subset_size": 0.5} if mode == "subset" else {}
    trainer = resumed(tmp_path / "part", mode, learning_rate=5e-3, max_steps=6, **size)
    assert trainer.state.best_global_step == whole.state.best_global_step
    assert trainer.state.best_metric == pytest.approx(whole.state.best_metric, rel=1e-5)
    assert os.path.isdir(trainer.state.best_model_checkpoint)


def test_full_evaluations_after_a_race_end_with_the_best_of_both(tmp_path):
    whole = finished(make(tmp_path / "whole", "full", **SAVES))
    finished(make(tmp_path / "part", "race", **SAVES, max_steps=6))
    trainer = resumed(tmp_path / "part", "full")
    assert trainer.state.best_global_step == whole.state.best_global_step
    assert trainer.state.best_metric == pytest.approx(whole.state.best_metric, rel=1e-5)
    assert [
        entry["eval_examples"] for entry in trainer.state.log_history if entry["step"] > 6 and "eval_loss" in entry
    ] == [400] * 6


@pytest.mark.parametrize("mode", ["race", "full"])
def test_another_metric(mode, tmp_path, caplog):
    finished(make(tmp_path, "race", **SAVES, max_steps=6))
    if mode == "race":
        trainer = make(tmp_path, "race", metric="accuracy", **SAVES)
        with pytest.raises(ValueError, match=r"metric='loss' and this one 'accuracy'.*metric_for_best_model"):
            trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
        assert trainer.state.global_step == 6
        return
    trainer = resumed(tmp_path, mode, metric="accuracy")
    assert trainer.state.global_step == 12
    assert "the best of the checkpoint's race stays unknown" in caplog.text


def impatient(kind):
    return EarlyStoppingCallback(2) if kind == "upstream" else PatienceCallback(2)


@pytest.mark.parametrize("kind", ["upstream", "ours"])
@pytest.mark.parametrize("metric", ["loss", "accuracy"])
def test_a_race_that_stopped_takes_no_step_when_it_is_resumed(kind, metric, tmp_path):
    options = {"metric": metric, "learning_rate": 0.0, "save_strategy": "steps", "save_steps": 1}  # nothing improves
    stopped = finished(make(tmp_path, "race", callbacks=[impatient(kind)], **options))
    assert stopped.state.global_step == 3
    again = make(tmp_path, "race", callbacks=[impatient(kind)], **options)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 3
    assert again.state.best_global_step == stopped.state.best_global_step


def test_a_race_that_stopped_goes_on_with_more_patience(tmp_path):
    options = {"learning_rate": 0.0, "save_strategy": "steps", "save_steps": 1}
    finished(make(tmp_path, "race", callbacks=[EarlyStoppingCallback(2)], **options))
    again = make(tmp_path, "race", callbacks=[EarlyStoppingCallback(4)], **options)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 5


class Dies(TrainerCallback):
    """Ends the run in the middle of a step."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise InterruptedError("killed")


def evaluated(trainer):
    times = ("seconds", "runtime", "per_second")
    entries = (entry for entry in trainer.state.log_history if "eval_loss" in entry)
    return [{key: value for key, value in entry.items() if not key.endswith(times)} for entry in entries]


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("mode", ["race", "subset"])
def test_a_checkpoint_before_the_next_evaluation_holds_what_the_one_before_held(mode, tmp_path):
    """Killed twice, once between two evaluations, the run evaluates as one that was never left."""
    options = {"eval_steps": 4, "save_strategy": "steps", "save_steps": 2}
    options |= {"eval_subset_size": 0.5, "eval_subset_strategy": "difficulty"} if mode == "subset" else {}
    whole = finished(make(tmp_path / "whole", mode, **options))
    for resume, dies in ((None, 5), (4, 7), (6, None)):
        trainer = make(tmp_path / "part", mode, **options, callbacks=[Dies(dies)])
        if mode == "subset":
            del trainer.__dict__["_scheduled"]  # as in a new process: made when something is evaluated
        folder = None if resume is None else str(tmp_path / "part" / f"checkpoint-{resume}")
        with pytest.raises(InterruptedError, match="killed") if dies else nullcontext():
            trainer.train(resume_from_checkpoint=folder)
    *found, last = evaluated(trainer)
    *expected, last_expected = evaluated(whole)
    assert found == expected
    assert last == pytest.approx(last_expected, rel=1e-6)  # all rows of the best, in other batches
    assert trainer.state.best_global_step == whole.state.best_global_step
