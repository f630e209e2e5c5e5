"""Rules of a plan in real runs: advance, stop, fall back, budgets by a clock, and stops that are no boundary."""

import os
import shutil
import signal

import pytest
import torch
from transformers import EarlyStoppingCallback, TrainerCallback

from hf_trainplus import BudgetCallback
from hf_trainplus.budget.from_run import read_run
from hf_trainplus.callbacks.stage import StageCallback
from tests.support import stages


class Metrics:
    """Returns one given value after another, whatever the predictions are."""

    def __init__(self, values):
        self.values = iter(values)

    def __call__(self, prediction):
        return {"score": next(self.values)}


def two(**first):
    return {"stages": [{"name": "a", "budget": "max_steps=8", **first}, {"name": "b", "budget": "max_steps=2"}]}


def scored(folder, plan, values, **options):
    return stages.make(folder, plan, trainer={"compute_metrics": Metrics(values)}, **options)


def ends(folder):
    found = {step: stages.record(folder, step) for step in stages.steps_of(folder)}
    return {step: (one["name"], one["next_stage"], one["reason"], one["because"]) for step, one in found.items()}


def test_a_metric_that_is_reached_ends_a_stage_early(tmp_path):
    plan = two(advance_when={"metric": "score", "at_least": 0.7})
    trainer = scored(tmp_path, plan, [0.5, 0.7, 0.9])
    trainer.train()
    assert ends(tmp_path) == {
        4: ("a", 1, None, "score at least 0.7"),
        6: ("b", None, "plan_finished", "budget spent"),
    }
    assert trainer.state.global_step == 6


def test_the_safe_end_of_the_interval_counts(tmp_path):
    """The loss has an interval on 11 rows; its upper end is what has to be under the mark."""
    trainer = stages.make(tmp_path / "first", two(learning_rate=1e-2))
    trainer.train()
    seen = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    value, high = seen[0]["eval_loss"], seen[0]["eval_loss_ci_high"]
    assert value < high
    plan = two(learning_rate=1e-2, advance_when={"metric": "loss", "at_most": (value + high) / 2})
    stages.make(tmp_path / "second", plan).train()
    assert min(stages.steps_of(tmp_path / "second")) > 2


def test_a_plateau_and_a_gap(tmp_path):
    plateau = {"plateau": {"metric": "score", "evaluations": 2, "greater_is_better": True}}
    scored(tmp_path / "plateau", two(advance_when=plateau), [0.5, 0.6, 0.6, 0.6, 0.6, 0.6]).train()
    assert ends(tmp_path / "plateau")[8][:2] == ("a", 1)
    gap = {"generalization_gap": {"at_least": -50}}
    stages.make(tmp_path / "gap", two(advance_when=gap)).train()
    assert ends(tmp_path / "gap")[2] == ("a", 1, None, "validation loss − training loss at least -50")


def test_a_share_of_the_budget(tmp_path):
    stages.make(tmp_path, two(advance_when={"budget_share": 0.5}), eval_steps=1).train()
    assert ends(tmp_path)[4] == ("a", 1, None, "50% of the budget used")


def test_a_gate_ends_the_run(tmp_path):
    plan = two(advance_when={"metric": "score", "at_least": 0.9}, on_budget_spent="stop")
    scored(tmp_path, plan, [0.5] * 9).train()
    assert ends(tmp_path) == {8: ("a", None, "budget_spent", "budget spent")}
    again = scored(tmp_path, plan, [])
    assert again.train(resume_from_checkpoint=True).global_step == 8
    assert not hasattr(again, "rows")


def test_a_rule_to_stop_ends_the_run(tmp_path):
    scored(tmp_path, two(stop_when={"metric": "score", "at_least": 5}), [1, 6]).train()
    assert ends(tmp_path) == {4: ("a", None, "patience", "score at least 5")}


FALLING = {
    "stages": [
        {"name": "a", "budget": "max_steps=3", "learning_rate": 1e-2},
        {
            "name": "b",
            "budget": "max_steps=4",
            "learning_rate": 1e-2,
            "fall_back_when": {"metric": "score", "at_least": 5},
            "fall_back_to": "a",
        },
    ]
}


def test_a_plan_falls_back_to_the_weights_of_an_earlier_boundary_once(tmp_path):
    weights = {}

    class Look(TrainerCallback):
        def on_train_begin(self, args, state, control, model, **kwargs):
            weights[state.global_step] = model.classifier.weight.detach().clone()

        def on_train_end(self, args, state, control, model, **kwargs):
            weights[f"end {state.global_step}"] = model.classifier.weight.detach().clone()

    trainer = scored(tmp_path, FALLING, [1, 1, 6, 1, 1, 9, 9, 9], callbacks=[Look()], save_total_limit=1)
    trainer.train()
    # a to step 3; b falls back at step 4; a again to step 7; b to its end, though its metric asks to fall once more
    assert trainer.state.global_step == 3 + 1 + 3 + 4
    assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry] == list(range(1, 12))
    assert torch.equal(weights[4], weights["end 3"])
    assert not torch.equal(weights["end 4"], weights["end 3"])
    assert trainer.rows[:3] != trainer.rows[4:7]


def test_a_fall_back_is_resumed(tmp_path):
    class Copy(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            if state.global_step == 4:
                shutil.copytree(tmp_path / "whole", tmp_path / "again")

    whole = scored(tmp_path / "whole", FALLING, [1, 1, 6, 1, 1, 9, 9, 9], callbacks=[Copy()])
    whole.train()
    again = scored(tmp_path / "again", FALLING, [1, 1, 9, 9, 9])
    again.train(resume_from_checkpoint=True)
    assert stages.differences(stages.outcome(whole), stages.outcome(again)) == []


class Clock(TrainerCallback):
    """A clock that moves with steps, evaluations and saves."""

    def __init__(self, step=1.0, evaluation=0.5, save=0.25):
        self.now, self.costs = 0.0, {"step": step, "evaluation": evaluation, "save": save}

    def on_optimizer_step(self, *args, **kwargs):
        self.now += self.costs["step"]

    def on_evaluate(self, *args, **kwargs):
        self.now += self.costs["evaluation"]

    def on_save(self, *args, **kwargs):
        self.now += self.costs["save"]


def timed(folder, plan, **options):
    clock = Clock()
    trainer = stages.make(folder, plan, callbacks=[clock], **options)
    callback = next(one for one in trainer.callback_handler.callbacks if isinstance(one, StageCallback))
    callback._clock = lambda: clock.now
    return trainer, clock


def test_a_stage_ends_inside_its_wall_clock_and_its_rate_with_it(tmp_path):
    plan = {
        "stages": [
            {"name": "timed", "budget": "wall_clock=20s", "learning_rate": 1e-2},
            {"name": "rest", "budget": "max_steps=2"},
        ]
    }
    trainer, _ = timed(tmp_path, plan, eval_steps=4)
    trainer.train()
    (first,) = [step for step in stages.steps_of(tmp_path) if stages.record(tmp_path, step)["next_stage"]]
    record = stages.record(tmp_path, first)
    spent = record["keeper"]["meter"]["wall_clock_seconds"]
    assert 15 <= spent <= 20
    assert (record["name"], record["because"]) == ("timed", "budget spent")
    rates = dict(stages.learning_rates(trainer))
    assert rates[1] == pytest.approx(1e-2)
    assert rates[first] < 2e-3  # the linear schedule is read at the share of the budget
    assert all(rates[step + 1] <= rates[step] for step in range(1, first))
    assert trainer.state.global_step == first + 2


def test_the_meters_of_a_stage_go_on_after_a_resume_and_start_anew_with_the_next(tmp_path):
    plan = {"stages": [{"name": name, "budget": "wall_clock=12s"} for name in ("a", "b")]}
    trainer, _ = timed(tmp_path, plan, save_steps=3)
    trainer.train()
    ended = [step for step in stages.steps_of(tmp_path) if stages.record(tmp_path, step)["next_stage"] == 1]
    assert len(ended) == 1
    inside = [step for step in stages.steps_of(tmp_path) if step > ended[0]]
    spent = [stages.record(tmp_path, step)["keeper"]["meter"]["wall_clock_seconds"] for step in inside]
    assert spent == sorted(spent)
    assert spent[0] < 6 <= spent[-1] <= 12


def test_a_stop_of_somebody_else_is_no_boundary(tmp_path):
    """Early stopping ends the run; resumed without it, the stage goes on."""
    plan = two()
    options = {"metric_for_best_model": "score", "greater_is_better": True, "load_best_model_at_end": True}
    stopper = EarlyStoppingCallback(early_stopping_patience=1)
    trainer = scored(tmp_path, plan, [0.5, 0.4], callbacks=[stopper], save_steps=2, **options)
    trainer.train()
    assert trainer.state.global_step == 4
    assert stages.record(tmp_path, 4)["next_stage"] is None
    again = scored(tmp_path, plan, [0.5] * 9, save_steps=2, **options)
    assert again.train(resume_from_checkpoint=True).global_step == 10


class Send(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step - 1:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("step", [3, 8])
def test_a_signal_ends_the_run_in_a_stage_and_at_its_boundary(step, tmp_path):
    plan = two()
    whole = stages.make(tmp_path / "whole", plan)
    whole.train()
    folder = tmp_path / "told"
    stages.make(folder, plan, callbacks=[Send(step)], stop_signals="SIGTERM").train()
    assert stages.steps_of(folder)[-1] == step
    # at the boundary the evaluation is left out, and what follows is decided after it is made up for
    assert stages.record(folder, step)["next_stage"] is None
    assert stages.record(folder, step)["spent"] == (step == 8)
    again = stages.make(folder, plan, stop_signals="SIGTERM")
    again.train(resume_from_checkpoint=True)
    assert stages.differences(stages.outcome(whole), stages.outcome(again)) == []


def test_a_signal_at_a_boundary_that_is_not_evaluated_begins_no_further_stage(tmp_path):
    told = stages.make(tmp_path, two(), callbacks=[Send(8)], stop_signals="SIGTERM", eval_strategy="no")
    assert told.train().global_step == 8
    assert stages.record(tmp_path, 8)["next_stage"] == 1
    assert len(told.rows) == 8
    again = stages.make(tmp_path, two(), stop_signals="SIGTERM", eval_strategy="no")
    assert again.train(resume_from_checkpoint=True).global_step == 10


def test_a_budget_of_the_whole_run_holds_over_stages(tmp_path):
    trainer = stages.make(tmp_path, two(), budget="max_steps=9")
    trainer.train()
    assert trainer.state.global_step == 9
    budget = next(one for one in trainer.callback_handler.callbacks if isinstance(one, BudgetCallback))
    assert budget.stop_reason.value == "budget_spent"
    assert budget.later_stages() == 0.0


def test_the_time_left_counts_later_stages(tmp_path):
    seen = []

    class Ask(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            seen.append((state.global_step, budget.later_stages()))

    plan = {"stages": [{"name": "a", "budget": "max_steps=3"}, {"name": "b", "budget": "wall_clock=2h"}]}
    trainer = stages.make(tmp_path, plan, callbacks=[Ask()], budget="max_steps=5")
    budget = next(one for one in trainer.callback_handler.callbacks if isinstance(one, BudgetCallback))
    trainer.train()
    assert seen[2] == (3, 7200.0)
    assert seen[3] == (4, 0.0)


def test_what_is_left_of_a_plan_is_read_from_its_checkpoints(tmp_path):
    class StopAt40(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 40:
                control.should_training_stop = control.should_save = True

    plan = {
        "stages": [
            {"name": "a", "budget": "max_steps=30"},
            {"name": "b", "budget": "wall_clock=1h"},
            {"name": "c", "budget": "max_steps=20"},
        ]
    }
    callbacks = [StopAt40(), BudgetCallback()]
    stages.make(tmp_path, plan, callbacks=callbacks, eval_strategy="no", save_steps=25).train()
    inside, over = (read_run(tmp_path / f"checkpoint-{step}") for step in (25, 30))
    assert (inside.time_left().steps_left, inside.time_left().ends_by) == (5, "max_steps")
    assert inside.time_left().later_stages > 3600
    assert (over.time_left().steps_left, over.stop_reason) == (0, None)
    left = read_run(tmp_path / "checkpoint-40").time_left()
    assert left.ends_by == "wall_clock"
    assert 3000 < left.seconds - left.later_stages <= 3600
    assert 0 < left.later_stages < 600


def test_a_failed_evaluation_at_a_boundary_does_not_hold_the_plan(tmp_path):
    class Fails(Metrics):
        def __call__(self, prediction):
            value = super().__call__(prediction)
            if value["score"] is None:
                raise RuntimeError("no score today")
            return value

    plan = {"stages": [{"name": "a", "budget": "max_steps=2"}, {"name": "b", "budget": "max_steps=2"}]}
    metrics = Fails([None, 0.5])
    trainer = stages.make(tmp_path, plan, trainer={"compute_metrics": metrics}, on_eval_error="continue")
    assert trainer.train().global_step == 4
    raising = stages.make(tmp_path / "r", plan, trainer={"compute_metrics": Fails([None])})
    with pytest.raises(RuntimeError, match="no score today"):
        raising.train()
    # the evaluation that the checkpoint owes is made up for, and then the next stage begins
    again = stages.make(tmp_path / "r", plan, trainer={"compute_metrics": Fails([0.1, 0.2])})
    assert again.train(resume_from_checkpoint=True).global_step == 4
    assert [len(batch) for batch in again.rows] == [2, 2]


def test_a_stage_of_tokens_of_which_none_is_counted_does_not_go_on_for_ever(tmp_path):
    trainer = stages.make(tmp_path, two(budget="tokens=100"), include_num_input_tokens_seen="all")
    trainer.model.main_input_name = "pixels"
    with pytest.raises(ValueError, match=r"budget tokens=100 is set, and no token was counted in step 1"):
        trainer.train()
