"""A run that a signal ended anywhere and that goes on equals the one that nobody stopped: no evaluation more or less."""

import signal

import pytest
from transformers import Trainer, TrainerCallback, TrainingArguments

from hf_trainplus import AdaptiveEvaluationCallback, BudgetCallback
from hf_trainplus.budget.stops import StopReason
from tests.support import stages, tiny

PLAN = {
    "stages": [
        {"name": "look", "budget": {"max_steps": 4}, "learning_rate": 1e-2, "gradient_accumulation_steps": 2},
        {"name": "tune", "budget": {"max_steps": 6}, "per_device_train_batch_size": 4},
        {"name": "release", "preset": "production"},
    ]
}
ADAPTIVE = {"eval_schedule": "adaptive", "eval_min_steps": 1, "eval_max_steps": 4}
EPOCHS = {"eval_strategy": "epoch", "logging_strategy": "epoch"}


class Signal(TrainerCallback):
    """Sends a signal to this process at one event of one step; of several of its kind at the first or another one."""

    def __init__(self, event, step, number=1):
        self.left = number
        setattr(self, event, self._at(step))

    def _at(self, wanted):
        def told(args, state, control, **kwargs):
            if state.global_step == wanted:
                self.left -= 1
                if self.left == 0:
                    signal.raise_signal(signal.SIGTERM)

        return told


def make(folder, plan=PLAN, callbacks=(), **options):
    defaults = {"eval_on_start": True, "save_steps": 2, "logging_steps": 3, "load_best_model_at_end": True}
    defaults |= {"eval_tokens_per_batch": None, "per_device_eval_batch_size": 2}
    return stages.make(folder, plan, callbacks=callbacks, **{**defaults, **options})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The outcome of the run that nobody stopped, by its options."""
    found = {}

    def get(**options):
        key = str(options)
        if key not in found:
            trainer = make(tmp_path_factory.mktemp("whole"), **options)
            trainer.train()
            found[key] = stages.outcome(trainer)
        return found[key]

    return get


# before an evaluation that is due or not, in the middle of one, at the end of a stage, at its last log
POINTS = [
    ("on_prediction_step", 0, 2),
    ("on_step_begin", 0, 1),
    ("on_step_begin", 2, 1),
    ("on_substep_end", 3, 1),
    ("on_prediction_step", 4, 3),
    ("on_save", 4, 1),
    ("on_step_begin", 5, 1),
    ("on_optimizer_step", 6, 1),
    ("on_prediction_step", 10, 1),
]


@pytest.mark.parametrize("plan", [PLAN, None], ids=["plan", "no plan"])
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_under_the_adaptive_schedule(plan, point, whole, tmp_path):
    options = {"plan": plan, **ADAPTIVE} if plan else {"plan": None, "max_steps": 11, "eval_mode": "race", **ADAPTIVE}
    expected = whole(**options)
    make(tmp_path, callbacks=[Signal(*point)], **options).train()
    resumed = make(tmp_path, **options)
    resumed.train(resume_from_checkpoint=bool(stages.steps_of(tmp_path)))
    assert stages.differences(expected, stages.outcome(resumed)) == []


@pytest.mark.parametrize("point", [("on_prediction_step", 0, 2), ("on_step_begin", 3, 1)], ids=str)
def test_by_epochs(point, whole, tmp_path):
    options = {"plan": None, "num_train_epochs": 1, "eval_mode": "race", "save_strategy": "epoch", **EPOCHS}
    expected = whole(**options)
    make(tmp_path, callbacks=[Signal(*point)], **options).train()
    resumed = make(tmp_path, **options)
    resumed.train(resume_from_checkpoint=True)
    assert stages.differences(expected, stages.outcome(resumed)) == []
    assert [entry["step"] for entry in resumed.state.log_history if "eval_loss" in entry].count(0) == 1


def test_an_evaluation_before_the_first_step_is_never_the_best_though_it_is_made_up_for(tmp_path):
    options = {"plan": None, "max_steps": 2, "learning_rate": 10.0}
    make(tmp_path, callbacks=[Signal("on_prediction_step", 0, 2)], **options).train()
    resumed = make(tmp_path, **options)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.best_global_step > 0


def test_a_finished_plan_by_epochs_is_evaluated_no_further(whole, tmp_path):
    options = {"plan": PLAN, **EPOCHS}
    make(tmp_path, **options).train()
    again = make(tmp_path, **options)
    again.train(resume_from_checkpoint=True)
    assert stages.differences(whole(**options), stages.outcome(again)) == []


def test_a_signal_at_the_last_log_of_a_stage_begins_no_other(tmp_path):
    class AtTheEnd(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if "train_runtime" in logs and state.global_step == 4:
                signal.raise_signal(signal.SIGTERM)

    plan = {"stages": [{**stage, "budget": {"max_steps": 4}} for stage in PLAN["stages"][:2]]}
    for options in ({}, {"budget": "max_steps=100"}):
        folder = tmp_path / str(len(options))
        # the log at the end of the loop is told before callbacks hear of the end
        stopped = make(folder, plan, [AtTheEnd()], **options)
        stopped.add_callback(AtTheEnd())
        stopped.train()
        assert stopped.state.global_step == 4
        resumed = make(folder, plan, **options)
        resumed.train(resume_from_checkpoint=True)
        assert resumed.state.global_step == 8


@pytest.mark.parametrize("due", [True, False])
def test_plain_callbacks_save_at_a_signal_and_evaluate_nothing(due, tmp_path):
    """The sender of a signal does not wait, and the stock trainer leaves no evaluation."""
    args = TrainingArguments(**tiny.quiet(tmp_path, max_steps=8, eval_strategy="steps", eval_steps=100))
    schedule = AdaptiveEvaluationCallback(min_steps=3 if due else 100, max_steps=100, metric="loss")
    budget = BudgetCallback()
    parts = {"train_dataset": tiny.rows(8), "eval_dataset": tiny.rows(4), "data_collator": tiny.PaddingCollator()}
    trainer = Trainer(tiny.bert(), args, callbacks=[budget, schedule, Signal("on_step_begin", 2)], **parts)
    trainer.train()
    assert (trainer.state.global_step, budget.stop_reason) == (3, StopReason.SIGNAL)
    assert not any("eval_loss" in entry for entry in trainer.state.log_history)
    assert stages.steps_of(tmp_path) == [3]
