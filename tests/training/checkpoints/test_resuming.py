"""What resume_from_checkpoint takes, and what it refuses."""

import os

import pytest

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny


@pytest.fixture
def run(tmp_path):
    make(tmp_path).train()
    return tmp_path


def make(folder, **options):
    arguments = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1, "per_device_train_batch_size": 2, **options}
    return PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, **arguments)),
        train_dataset=tiny.rows(16),
        data_collator=tiny.PaddingCollator(),
    )


def halve(path):
    os.truncate(path, path.stat().st_size // 2)


def test_torn_ones_are_skipped_and_named_once(run, caplog):
    halve(run / "checkpoint-4" / "model.safetensors")
    (run / "checkpoint-3" / "optimizer.pt").unlink()
    resumed = make(run)
    resumed.train(resume_from_checkpoint=True)
    said = [record.getMessage() for record in caplog.records if "torn" in record.getMessage()]
    assert len(said) == 1
    assert "checkpoint-4: model.safetensors holds" in said[0]
    assert "checkpoint-3: optimizer.pt is missing" in said[0]
    assert f"resumed from {run}/checkpoint-2." in said[0]
    assert resumed.state.global_step == 4
    assert [entry["step"] for entry in resumed.state.log_history if "loss" in entry] == [1, 2, 3, 4]


def test_a_whole_one_is_taken_without_a_word(run, caplog):
    make(run).train(resume_from_checkpoint=True)
    assert not [record for record in caplog.records if "torn" in record.getMessage()]


def test_a_torn_one_that_is_named_is_refused_with_the_way_out(run):
    halve(run / "checkpoint-4" / "optimizer.pt")
    torn = str(run / "checkpoint-4")
    with pytest.raises(ValueError, match=r"checkpoint-4' is torn: optimizer.pt holds .* bytes\. .*checkpoint-3'"):
        make(run).train(resume_from_checkpoint=torn)
    fixed = make(run)
    fixed.train(resume_from_checkpoint=str(run / "checkpoint-3"))
    assert fixed.state.global_step == 4


def test_when_all_are_torn_each_is_named(run):
    for step in range(1, 5):
        (run / f"checkpoint-{step}" / "trainer_state.json").unlink()
    message = r"No valid checkpoint found .*checkpoint-4: trainer_state.json is missing; checkpoint-3: .*=None"
    with pytest.raises(ValueError, match=message):
        make(run).train(resume_from_checkpoint=True)
    with pytest.raises(ValueError, match="No checkpoint beside it is whole"):
        make(run).train(resume_from_checkpoint=str(run / "checkpoint-1"))


def test_no_checkpoint_at_all(tmp_path):
    with pytest.raises(ValueError, match=r"No valid checkpoint found in output directory \(.*\)\. Start anew"):
        make(tmp_path).train(resume_from_checkpoint=True)


def test_a_folder_that_is_not_there_is_refused_by_upstream(tmp_path):
    with pytest.raises(ValueError, match="Can't find a valid checkpoint"):
        make(tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-9"))


@pytest.mark.parametrize("nothing", [None, False])
def test_nothing_starts_anew(nothing, run):
    trainer = make(run, max_steps=1)
    trainer.train(resume_from_checkpoint=nothing)
    assert trainer.state.global_step == 1
