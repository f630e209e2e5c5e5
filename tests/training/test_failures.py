"""An evaluation that fails never costs the training."""

import json
import os
import signal

import pytest
from transformers import TrainerCallback

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from hf_trainplus.training.pending import FAILURES, MARKER
from tests.support import tiny
from tests.support.forked import in_child


class FailsAt:
    def __init__(self, *calls):
        self.calls, self.count = calls, 0

    def __call__(self, prediction):
        self.count += 1
        if self.count in self.calls:
            raise RuntimeError("the metric is broken")
        return {"accuracy": 0.1 * self.count}


def make(folder, metric, **options):
    arguments = {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 3}
    return PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, **{**arguments, **options})),
        train_dataset=tiny.rows(16),
        eval_dataset=tiny.rows(6),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=metric,
    )


def test_the_checkpoint_is_written_and_marked_before_the_error(tmp_path):
    with pytest.raises(RuntimeError, match="the metric is broken"):
        make(tmp_path, FailsAt(2)).train()
    marked = tmp_path / "checkpoint-4" / MARKER
    assert json.loads(marked.read_text()) == {"step": 4, "error": "RuntimeError", "message": "the metric is broken"}
    assert not (tmp_path / "checkpoint-3" / MARKER).exists()


def test_a_resumed_run_evaluates_the_pending_step_first(tmp_path):
    whole = make(tmp_path / "whole", FailsAt(), metric_for_best_model="accuracy")
    whole.train()
    folder = tmp_path / "broken"
    with pytest.raises(RuntimeError, match="broken"):
        make(folder, FailsAt(2), metric_for_best_model="accuracy").train()
    metric = FailsAt()
    metric.count = 1
    resumed = make(folder, metric, metric_for_best_model="accuracy")
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-4"))
    assert not (folder / "checkpoint-4" / MARKER).exists()

    def evaluations(trainer):
        return [(entry["step"], entry["eval_loss"]) for entry in trainer.state.log_history if "eval_loss" in entry]

    assert evaluations(resumed) == evaluations(whole)
    assert resumed.state.best_global_step == whole.state.best_global_step == 6
    for name, value in whole.model.state_dict().items():
        assert value.equal(resumed.model.state_dict()[name])


class Places(TrainerCallback):
    """Fails at the second evaluation, at one place outside the metric function."""

    def __init__(self, place):
        self.place, self.evaluations = place, 0

    def fail(self, place):
        if place == self.place and self.evaluations == 1:
            raise RuntimeError(f"{place} is broken")

    def on_prediction_step(self, *_, **__):
        self.fail("prediction_step")

    def on_log(self, args, state, control, logs=None, **_):
        if "eval_loss" in logs:
            self.fail("log")

    def on_evaluate(self, *_, **__):
        self.fail("evaluate")
        self.evaluations += 1

    def collate(self, features):
        if not self.model.training:
            self.fail("collator")
        return tiny.PaddingCollator()(features)


@pytest.mark.parametrize("place", ["collator", "prediction_step", "log", "evaluate"])
def test_whatever_fails_in_an_evaluation_the_checkpoint_is_written_and_the_step_evaluated_on_resume(place, tmp_path):
    broken, places = make(tmp_path, FailsAt()), Places(place)
    broken.add_callback(places)
    broken.data_collator, places.model = places.collate, broken.model
    with pytest.raises(RuntimeError, match=f"{place} is broken"):
        broken.train()
    assert json.loads((tmp_path / "checkpoint-4" / MARKER).read_text())["message"] == f"{place} is broken"
    resumed = make(tmp_path, FailsAt())
    resumed.train(resume_from_checkpoint=True)
    assert {entry["step"] for entry in resumed.state.log_history if "eval_loss" in entry} == {2, 4, 6}
    assert not (tmp_path / "checkpoint-4" / MARKER).exists()


def test_an_evaluation_before_training_that_fails_is_made_on_resume(tmp_path):
    with pytest.raises(RuntimeError, match="broken"):
        make(tmp_path, FailsAt(1), eval_on_start=True).train()
    assert (tmp_path / "checkpoint-0" / MARKER).exists()
    resumed = make(tmp_path, FailsAt())
    resumed.train(resume_from_checkpoint=True)
    assert [entry["step"] for entry in resumed.state.log_history if "eval_loss" in entry] == [0, 2, 4, 6]


@pytest.mark.parametrize("strategy", ["steps", "best"])
def test_a_death_inside_an_evaluation_falls_back_to_the_checkpoint_before_it(strategy, tmp_path):
    options = {"save_strategy": strategy, "save_steps": 2, "metric_for_best_model": "accuracy"}

    def dies():
        metric = FailsAt()

        def second_kills(prediction):
            if metric.count == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return metric(prediction)

        make(tmp_path / "run", second_kills, **options).train()

    assert in_child(dies, tmp_path / "child") is None
    left = sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*"))
    assert left == ["checkpoint-2"]
    metric = FailsAt()
    metric.count = 1
    resumed = make(tmp_path / "run", metric, **options)
    resumed.train(resume_from_checkpoint=True)
    assert [entry["step"] for entry in resumed.state.log_history if "eval_loss" in entry] == [2, 4, 6]


def test_continue_goes_on_and_records_the_failure(tmp_path):
    trainer = make(tmp_path, FailsAt(2), on_eval_error="continue", metric_for_best_model="accuracy")
    trainer.train()
    assert trainer.state.global_step == 6
    lines = [json.loads(line) for line in (tmp_path / FAILURES).read_text().splitlines()]
    assert lines == [{"step": 4, "error": "RuntimeError", "message": "the metric is broken"}]
    assert [entry["step"] for entry in trainer.state.log_history if "eval_accuracy" in entry] == [2, 6]


def test_successful_evaluations_keep_stocks_order(tmp_path):
    events = []

    class Order(TrainerCallback):
        def on_evaluate(self, args, state, control, **kwargs):
            events.append(("evaluate", state.global_step))

        def on_save(self, args, state, control, **kwargs):
            events.append(("save", state.global_step))

    trainer = make(tmp_path, FailsAt(), save_steps=2)
    trainer.add_callback(Order())
    trainer.train()
    assert events == [(name, step) for step in (2, 4, 6) for name in ("evaluate", "save")]


def test_a_person_calling_evaluate_gets_the_error(tmp_path):
    with pytest.raises(RuntimeError, match="broken"):
        make(tmp_path, FailsAt(1), on_eval_error="continue").evaluate()


def test_unknown_on_eval_error_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'raise', 'continue'"):
        PlusTrainingArguments(**tiny.quiet(tmp_path, on_eval_error="ignore"))
