"""An evaluation that fails never costs the training."""

import json

import pytest

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from hf_trainplus.training.pending import FAILURES, MARKER
from tests.support import tiny


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


def test_continue_goes_on_and_records_the_failure(tmp_path):
    trainer = make(tmp_path, FailsAt(2), on_eval_error="continue", metric_for_best_model="accuracy")
    trainer.train()
    assert trainer.state.global_step == 6
    lines = [json.loads(line) for line in (tmp_path / FAILURES).read_text().splitlines()]
    assert lines == [{"step": 4, "error": "RuntimeError", "message": "the metric is broken"}]
    assert [entry["step"] for entry in trainer.state.log_history if "eval_accuracy" in entry] == [2, 6]


def test_successful_evaluations_keep_stocks_order(tmp_path):
    from transformers import TrainerCallback

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
