"""How stages evaluate: their own mode, schedule and rhythm, and what is carried over a boundary."""

import shutil

from transformers import TrainerCallback

from hf_trainplus.callbacks.adaptive_evaluation import AdaptiveEvaluationCallback
from tests.support import stages


def evaluated(trainer):
    return [(entry["step"], entry["eval_examples"]) for entry in trainer.state.log_history if "eval_loss" in entry]


def test_an_adaptive_stage_between_fixed_ones(tmp_path):
    plan = {
        "stages": [
            {"name": "a", "budget": "max_steps=4"},
            {"name": "b", "budget": "max_steps=12", "eval": {"schedule": "adaptive"}},
            {"name": "c", "budget": "max_steps=4"},
        ]
    }
    options = {"eval_min_steps": 2, "eval_max_steps": 8, "eval_improvement_threshold": 1e9}
    trainer = stages.make(tmp_path, plan, **options)
    trainer.train()
    steps = [step for step, _ in evaluated(trainer)]
    assert [step for step in steps if step <= 4] == [2, 4]
    inside = [step for step in steps if 4 < step <= 16]
    assert len(inside) < 6
    assert inside[-1] == 16
    assert [step for step in steps if step > 16] == [18, 20]
    assert not [one for one in trainer.callback_handler.callbacks if isinstance(one, AdaptiveEvaluationCallback)]


def test_a_stage_evaluates_after_every_second_epoch(tmp_path):
    plan = {"stages": [{"name": "a", "budget": {"num_train_epochs": 5}, "eval": {"strategy": "epoch", "every": 2}}]}
    trainer = stages.make(tmp_path, plan, eval_strategy="no")
    trainer.train()
    assert evaluated(trainer) == [(24, 11), (48, 11), (60, 11)]


def test_subsets_of_stages_are_drawn_anew_unless_they_are_the_same(tmp_path):
    def look(size):
        return {"mode": "subset", "subset_size": size}

    names = [("a", 5), ("b", 5), ("c", 7)]
    plan = {"stages": [{"name": name, "budget": "max_steps=2", "eval": look(size)} for name, size in names]}
    trainer = stages.make(tmp_path, plan)
    trainer.train()
    assert evaluated(trainer)[:3] == [(2, 5), (4, 5), (6, 7)]


def test_a_race_is_settled_before_a_stage_that_does_not_race(tmp_path):
    plan = {
        "stages": [
            {"name": "race", "budget": "max_steps=6", "eval": {"mode": "race"}, "learning_rate": 1e-2},
            {"name": "full", "budget": "max_steps=2", "eval": {"mode": "full"}},
        ]
    }

    class Copy(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            if state.global_step == 6:
                shutil.copytree(tmp_path / "whole", tmp_path / "again")

    options = {"metric_for_best_model": "loss", "save_steps": 2}
    whole = stages.make(tmp_path / "whole", plan, callbacks=[Copy()], **options)
    whole.train()
    settled = [entry for entry in whole.state.log_history if "eval_best_step" in entry]
    assert [entry["step"] for entry in settled] == [6]
    again = stages.make(tmp_path / "again", plan, **options)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 8
    assert stages.differences(stages.outcome(whole), stages.outcome(again)) == []


def test_a_run_of_stages_that_evaluate_may_load_the_best(tmp_path):
    """The run's own eval_strategy is "no"; its stages say when."""
    plan = {"stages": [{"name": "a", "budget": "max_steps=6", "eval": {"strategy": "steps", "every": 2}}]}
    trainer = stages.make(tmp_path, plan, eval_strategy="no", load_best_model_at_end=True)
    trainer.train()
    assert trainer.state.best_global_step in (2, 4, 6)
