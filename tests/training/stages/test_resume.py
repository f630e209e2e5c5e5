"""A run of a plan that is taken up again: the same bits, the right stage, and no step that is not due."""

import shutil

import pytest
import torch
from transformers import TrainerCallback

from tests.support import stages


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One run without interruption, with a checkpoint at every step."""
    folder = tmp_path_factory.mktemp("whole")
    trainer = stages.make(folder, save_steps=1)
    trainer.train()
    assert stages.steps_of(folder) == list(range(1, 20))
    return folder, stages.outcome(trainer), trainer.rows


# in the first stage, at both boundaries, in the second stage's first and second epoch and between them, in the last
@pytest.mark.parametrize("step", [2, 3, 4, 8, 9, 10, 12, 13, 18])
def test_a_resumed_run_goes_on_at_its_step_with_the_same_bits(whole, step, tmp_path):
    folder, expected, rows = whole
    shutil.copytree(folder / f"checkpoint-{step}", tmp_path / f"checkpoint-{step}")
    records = folder / "trainplus_checkpoints"
    shutil.copytree(records, tmp_path / records.name)
    trainer = stages.make(tmp_path, save_steps=1)
    trainer.train(resume_from_checkpoint=True)
    assert stages.differences(expected, stages.outcome(trainer)) == []
    assert trainer.rows == rows[-len(trainer.rows) :]


def test_relaunched_stages_equal_one_process(whole, tmp_path, monkeypatch):
    """Every stage in a trainer of its own, as `trainplus run` starts them."""
    for name in ("look", "tune", "finish"):
        monkeypatch.setenv("TRAINPLUS_STAGE", name)
        trainer = stages.make(tmp_path, save_steps=1)
        trainer.train()
    assert stages.differences(whole[1], stages.outcome(trainer)) == []


def test_a_process_that_runs_one_stage_refuses_another(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINPLUS_STAGE", "tune")
    with pytest.raises(ValueError, match="TRAINPLUS_STAGE='tune', and the next stage of a fresh run is 'look'"):
        stages.make(tmp_path).train()


def test_a_finished_plan_takes_no_step(whole, tmp_path):
    folder, expected, _ = whole
    shutil.copytree(folder / "checkpoint-19", tmp_path / "checkpoint-19")
    trainer = stages.make(tmp_path)
    assert trainer.train(resume_from_checkpoint=True).global_step == 19
    assert not hasattr(trainer, "rows")
    assert stages.steps_of(tmp_path) == [19]
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, expected["weights"][name])


def test_a_finished_plan_takes_no_step_though_only_the_best_is_kept(tmp_path):
    """Upstream would delete the last checkpoint, and with it the knowledge that the plan is over."""
    options = {"save_total_limit": 1, "load_best_model_at_end": True, "learning_rate": 0.1}
    plan = {
        "stages": [{"name": "a", "budget": "max_steps=3"}, {"name": "b", "budget": "max_steps=5", "learning_rate": 0.5}]
    }
    first = stages.make(tmp_path, plan, **options)
    first.train()
    assert first.state.best_global_step < 8
    again = stages.make(tmp_path, plan, **options)
    again.train(resume_from_checkpoint=True)
    assert not hasattr(again, "rows")
    assert stages.differences(stages.outcome(first), stages.outcome(again)) == []


@pytest.mark.parametrize(
    ("step", "change", "named"),
    [
        (2, {"look": {"learning_rate": 0.5}}, r"stages\[0\].learning_rate is 0.01 in the checkpoint and 0.5 now"),
        (2, {"finish": {"budget": {"max_steps": 9}}}, r"stages\[2\].budget.max_steps is 7.0 in the checkpoint and 9"),
        (3, {"tune": {"freeze": ["classifier.*"]}}, r"stages\[1\].freeze is not given in the checkpoint and \['cl"),
    ],
)
def test_a_changed_plan_is_named_and_refused(whole, step, change, named, tmp_path):
    shutil.copytree(whole[0] / f"checkpoint-{step}", tmp_path / f"checkpoint-{step}")
    trainer = stages.make(tmp_path, stages.without(stages.THREE, **change))
    with pytest.raises(ValueError, match=f"{named}.*plan_on_resume='replace'"):
        trainer.train(resume_from_checkpoint=True)


def test_every_change_is_named_at_once(whole, tmp_path):
    shutil.copytree(whole[0] / "checkpoint-2", tmp_path / "checkpoint-2")
    plan = stages.without(stages.THREE, look={"learning_rate": 0.5, "data_fraction": 0.6}, tune={"warmup_steps": 1})
    with pytest.raises(ValueError, match=r"data_fraction.*learning_rate.*warmup_steps"):
        stages.make(tmp_path, plan).train(resume_from_checkpoint=True)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"per_device_train_batch_size": 4}, "rows_a_step is 2 in the checkpoint and 4 now"),
        ({"seed": 7}, "seed is 42 in the checkpoint and 7 now"),
        ({"weight_decay": 0.5}, "weight_decay is 0.0 in the checkpoint and 0.5 now"),
    ],
)
def test_the_runs_own_options_are_held_to_the_stage_too(whole, options, named, tmp_path):
    shutil.copytree(whole[0] / "checkpoint-2", tmp_path / "checkpoint-2")
    with pytest.raises(ValueError, match=named):
        stages.make(tmp_path, **options).train(resume_from_checkpoint=True)


def test_replace_takes_the_new_plan_and_begins_a_changed_stage_anew(whole, tmp_path):
    shutil.copytree(whole[0] / "checkpoint-2", tmp_path / "checkpoint-2")
    plan = stages.without(stages.THREE, look={"learning_rate": 0.5, "budget": {"max_steps": 2}})
    trainer = stages.make(tmp_path, plan, plan_on_resume="replace")
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 2 + 2 + 9 + 7
    assert dict(stages.learning_rates(trainer))[3] == 0.5


def test_replace_goes_on_in_a_stage_that_has_not_changed(whole, tmp_path):
    folder, expected, rows = whole
    shutil.copytree(folder / "checkpoint-8", tmp_path / "checkpoint-8")
    shutil.copytree(folder / "trainplus_checkpoints", tmp_path / "trainplus_checkpoints")
    plan = stages.without(stages.THREE, finish={"budget": {"max_steps": 1}})
    trainer = stages.make(tmp_path, plan, plan_on_resume="replace")
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 13
    upto = [entry for entry in stages.outcome(trainer)["logs"] if entry["step"] <= 12]
    assert upto == [entry for entry in expected["logs"] if entry["step"] <= 12]


def test_replace_goes_on_behind_a_finished_plan(whole, tmp_path):
    shutil.copytree(whole[0] / "checkpoint-19", tmp_path / "checkpoint-19")
    longer = stages.without(stages.THREE)
    longer["stages"].append({"name": "more", "budget": {"max_steps": 2}})
    trainer = stages.make(tmp_path, longer, plan_on_resume="replace")
    assert trainer.train(resume_from_checkpoint=True).global_step == 21


def test_replace_says_when_the_new_plan_has_no_place_for_the_checkpoint(whole, tmp_path):
    shutil.copytree(whole[0] / "checkpoint-8", tmp_path / "checkpoint-8")
    trainer = stages.make(tmp_path, stages.without(stages.THREE, "look"), plan_on_resume="replace")
    with pytest.raises(ValueError, match="is in stage 'tune', and the new plan has look. Keep the name"):
        trainer.train(resume_from_checkpoint=True)


def test_a_checkpoint_without_a_plan_begins_one_only_when_asked(tmp_path):
    stages.make(tmp_path, None, max_steps=4, save_steps=2).train()
    with pytest.raises(ValueError, match="was written without a plan.*begin stage 'look' from its weights"):
        stages.make(tmp_path).train(resume_from_checkpoint=True)
    trainer = stages.make(tmp_path, plan_on_resume="replace")
    assert trainer.train(resume_from_checkpoint=True).global_step == 4 + 19


def test_a_plan_is_not_forgotten_silently(whole, tmp_path):
    shutil.copytree(whole[0] / "checkpoint-2", tmp_path / "checkpoint-2")
    with pytest.raises(ValueError, match="is in stage 'look' of a plan, and no plan was given. Pass the plan again"):
        stages.make(tmp_path, None, max_steps=4).train(resume_from_checkpoint=True)


def test_evaluations_of_a_resumed_run_have_the_batches_of_the_uninterrupted_one(tmp_path):
    """The limit that is measured on a subset is another one than on the whole set, and rounds sums otherwise."""
    batches = {}

    class Note(TrainerCallback):
        def __init__(self, into):
            self.into = into

        def on_prediction_step(self, args, state, control, **kwargs):
            if state.global_step > 12:
                self.into.append(state.global_step)

    first = stages.make(tmp_path, save_steps=1, callbacks=[Note(batches.setdefault("whole", []))])
    first.train()
    resumed = stages.make(tmp_path / "r", save_steps=1, callbacks=[Note(batches.setdefault("resumed", []))])
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-14"))
    assert batches["resumed"] == batches["whole"]
    assert stages.differences(stages.outcome(first), stages.outcome(resumed)) == []
