"""Plans on training data without a length: what ends a stage must be steps."""

import shutil

import pytest
import torch

from tests.support import stages, tiny


class Stream(torch.utils.data.IterableDataset):
    """Twenty rows, of which nobody knows that they are twenty: ten steps a pass."""

    def __iter__(self):
        return iter(tiny.rows(20))


class Sized(Stream):
    def __len__(self):
        return 20


A = {"name": "a", "budget": "max_steps=4", "learning_rate": 1e-2}
B = {"name": "b", "budget": "max_steps=13", "learning_rate": 5e-3}


def make(folder, *plan, stream=Stream, **options):
    given = {"eval_strategy": "no", "max_steps": -1, **options}
    return stages.make(folder, {"stages": list(plan)}, trainer={"train_dataset": stream()}, **given)


def test_steps_in_the_plan_are_enough(tmp_path):
    trainer = make(tmp_path, A, B)
    assert trainer.args.max_steps == -1
    trainer.train()
    assert trainer.state.global_step == 17
    assert [stages.record(tmp_path, step)["name"] for step in (4, 17)] == ["a", "b"]


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("plan", [[A, B], None], ids=["in a stage", "without a plan"])
def test_a_resumed_run_goes_on_in_its_second_pass(plan, accumulation, tmp_path):
    options = {"save_steps": 1, "gradient_accumulation_steps": accumulation}

    def begin():
        if plan is not None:
            return make(tmp_path, *plan, **options)
        given = {"eval_strategy": "no", "max_steps": 17, **options}
        return stages.make(tmp_path, None, trainer={"train_dataset": Stream()}, **given)

    whole = begin()
    whole.train()
    for step in (16, 15, 14, 10):
        last = tmp_path / f"checkpoint-{step}"
        for found in stages.steps_of(tmp_path):
            if found > step:
                shutil.rmtree(tmp_path / f"checkpoint-{found}")
        again = begin()
        again.train(resume_from_checkpoint=str(last))
        assert stages.differences(stages.outcome(whole), stages.outcome(again)) == []
        assert again.rows == whole.rows[step * accumulation :]


def test_a_finished_plan_takes_no_step(tmp_path):
    make(tmp_path, A).train()
    again = make(tmp_path, A)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 4
    assert not hasattr(again, "rows")


@pytest.mark.parametrize("order", [0, 1])
def test_a_stage_that_only_evaluates_needs_no_steps(order, tmp_path):
    release = {"name": "release", "preset": "production"}
    trainer = make(tmp_path, *([A, release] if order == 0 else [release, A]))
    trainer.train()
    assert trainer.state.global_step == 4
    assert sum("eval_loss" in entry for entry in trainer.state.log_history) == 1


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (
            {"budget": "num_train_epochs=2"},
            r"num_train_epochs=2 counts passes .* a stream without a length. Write budget: \{max_steps: 1000\}",
        ),
        ({"budget": "num_train_epochs=2,max_steps=9"}, "num_train_epochs=2 counts passes over rows"),
        (
            {"budget": {"wall_clock": 60}},
            r"wall_clock: 60 leaves open how many steps .* budget: \{wall_clock: 60, max_steps: 1000\}",
        ),
        (
            {"advance_when": {"metric": "loss", "at_most": 0.1}},
            r"its rule leaves open how many steps .* budget: \{max_steps: 1000\}",
        ),
    ],
)
def test_a_stage_without_a_last_step_is_refused_with_the_line_that_ends_it(stage, message, tmp_path):
    with pytest.raises(ValueError, match=f"stage 'a': {message}"):
        make(tmp_path, {"name": "a", **stage}, eval_strategy="steps")


def test_a_budget_in_time_beside_steps_is_one_that_a_stream_can_have(tmp_path):
    trainer = make(tmp_path, {"name": "a", "budget": {"wall_clock": 3600, "max_steps": 12}})
    trainer.train()
    assert trainer.state.global_step == 12


def test_a_rule_ends_with_the_run_at_the_latest(tmp_path):
    trainer = make(
        tmp_path,
        {"name": "a", "advance_when": {"metric": "loss", "at_most": 0.0}},
        max_steps=3,
        eval_strategy="steps",
        eval_steps=2,
    )
    trainer.train()
    assert trainer.state.global_step == 3


def test_a_stream_with_a_length_counts_its_passes(tmp_path):
    trainer = make(tmp_path, {"name": "a", "budget": "num_train_epochs=1"}, stream=Sized)
    trainer.train()
    assert trainer.state.global_step == 10


def test_without_a_plan_upstream_asks_for_steps(tmp_path):
    with pytest.raises(ValueError, match="max_steps has to be specified"):
        stages.make(tmp_path, None, trainer={"train_dataset": Stream()}, eval_strategy="no")
