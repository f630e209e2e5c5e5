"""Saves of PlusTrainer: under another name until whole, then rotation, and what is written late."""

import json
import os

import pytest
import torch
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from hf_trainplus import PatienceCallback, PlusTrainer, PlusTrainingArguments
from hf_trainplus.training.checkpoints.whole import why_torn
from hf_trainplus.training.checkpoints.writer import PREFIX, Writer
from hf_trainplus.training.pending import MARKER, is_pending
from tests.support import tiny


def make(folder, callbacks=(), metric=None, trainer_class=PlusTrainer, **options):
    arguments = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "per_device_train_batch_size": 2, **options}
    return trainer_class(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, **arguments)),
        train_dataset=tiny.rows(16),
        eval_dataset=tiny.rows(6),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=metric,
        callbacks=list(callbacks),
    )


def names(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith(("checkpoint-", "_")))


def test_nothing_stands_under_its_own_name_before_it_is_whole(tmp_path, monkeypatch):
    seen = []
    original = torch.save

    def saving(content, path, *args, **kwargs):
        seen.append((str(path), names(tmp_path)))
        return original(content, path, *args, **kwargs)

    monkeypatch.setattr(torch, "save", saving)
    make(tmp_path).train()
    mine = Writer.current().folder_name
    assert {tuple(found) for _, found in seen} == {(mine,), (mine, "checkpoint-2")}
    assert all(f"/{mine}/checkpoint-" in path for path, _ in seen)
    assert names(tmp_path) == ["checkpoint-2", "checkpoint-4"]


@pytest.mark.parametrize("limit", [1, 2])
def test_the_previous_one_goes_after_the_new_one_has_come(limit, tmp_path, monkeypatch):
    moves = []
    original = os.rename

    def rename(source, target):
        moves.append((os.path.basename(source), os.path.basename(target)))
        return original(source, target)

    monkeypatch.setattr(os, "rename", rename)
    make(tmp_path, save_total_limit=limit, save_steps=1, max_steps=3).train()
    came = [place for place, (_, target) in enumerate(moves) if target == "checkpoint-3"]
    gone = [place for place, (source, target) in enumerate(moves) if target == f"deleted-checkpoint-{3 - limit}"]
    assert len(came) == len(gone) == 1
    assert came < gone
    assert names(tmp_path) == [f"checkpoint-{step}" for step in range(4 - limit, 4)]


def test_a_save_that_fails_raises_and_leaves_the_previous_one(tmp_path, monkeypatch):
    trainer = make(tmp_path)
    original = torch.save

    def full(content, path, *args, **kwargs):
        if trainer.state.global_step == 4 and str(path).endswith("scheduler.pt"):
            raise OSError("No space left on device")
        return original(content, path, *args, **kwargs)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        trainer.train()
    assert names(tmp_path) == ["checkpoint-2"]
    assert why_torn(tmp_path / "checkpoint-2") is None


def test_what_a_kill_left_goes_at_the_next_start_and_anothers_does_not(tmp_path):
    gone = tmp_path / Writer(Writer.current().host, 2**22 + 7, 1).folder_name / "checkpoint-2"
    elsewhere = tmp_path / f"{PREFIX}another-host-12-1700000000"
    gone.mkdir(parents=True)
    elsewhere.mkdir()
    make(tmp_path, max_steps=1).train()
    assert names(tmp_path) == [elsewhere.name, "checkpoint-1"]


def test_the_best_is_named_by_its_own_place(tmp_path):
    trainer = make(tmp_path, eval_strategy="steps", eval_steps=2, metric_for_best_model="loss")
    trainer.train()
    for folder in names(tmp_path):
        state = json.loads((tmp_path / folder / "trainer_state.json").read_text())
        assert state["best_model_checkpoint"] == str(tmp_path / f"checkpoint-{state['best_global_step']}")
    assert trainer.state.best_model_checkpoint == str(tmp_path / f"checkpoint-{trainer.state.best_global_step}")


def test_a_callback_finds_the_checkpoint_in_its_place(tmp_path):
    found = []

    class Look(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            found.append(why_torn(os.path.join(args.output_dir, f"checkpoint-{state.global_step}")))

    make(tmp_path, [Look()]).train()
    assert found == [None, None]


def test_a_trainer_that_chooses_its_own_folder_writes_there(tmp_path):
    class Elsewhere(PlusTrainer):
        def _get_output_dir(self, trial):
            return str(tmp_path / "elsewhere")

    make(tmp_path / "out", trainer_class=Elsewhere).train()
    assert names(tmp_path / "elsewhere") == ["checkpoint-2", "checkpoint-4"]


def test_pushes_are_made_from_the_last_place(tmp_path, monkeypatch):
    pushed = []
    monkeypatch.setattr(
        "transformers.Trainer._push_from_checkpoint",
        lambda self, folder: pushed.append((os.path.relpath(folder, tmp_path), why_torn(folder))),
    )
    trainer = make(tmp_path)
    trainer.args.push_to_hub = True
    trainer.hub_model_id = "nobody/nothing"
    monkeypatch.setattr(trainer, "_finish_current_push", lambda: None)
    trainer.train()
    assert pushed == [("checkpoint-2", None), ("checkpoint-4", None)]


def test_save_state_appears_whole_and_strict(tmp_path):
    trainer = make(tmp_path)
    trainer.state.log_history = [{"loss": float("nan"), "step": 1}]
    trainer.save_state()
    state = json.loads((tmp_path / "trainer_state.json").read_text(), parse_constant=pytest.fail)
    assert state["log_history"] == [{"loss": "NaN", "step": 1}]
    assert [name for name in os.listdir(tmp_path) if "tmp" in name] == []


class Broken:
    """A metric that fails at one call."""

    def __init__(self, call=None):
        self.call, self.count = call, 0

    def __call__(self, prediction):
        self.count += 1
        if self.count == self.call:
            raise RuntimeError("the metric is broken")
        return {"accuracy": 0.5}


def test_the_mark_of_an_owed_evaluation_is_in_the_checkpoint_when_it_comes(tmp_path, monkeypatch):
    marked = []
    original = os.rename

    def rename(source, target):
        marked.append(is_pending(source))
        return original(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(RuntimeError, match="the metric is broken"):
        make(tmp_path, metric=Broken(1), eval_strategy="steps", eval_steps=3).train()
    assert marked == [False, True]  # steps 2 and 3


def test_an_evaluation_that_was_made_up_for_enters_the_checkpoint_with_the_callbacks_states(tmp_path):
    """Otherwise a second kill would lose what patience has counted."""
    options = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 4, "learning_rate": 0.3}
    with pytest.raises(RuntimeError, match="the metric is broken"):
        make(tmp_path, [PatienceCallback(50, metric="loss")], Broken(1), **options).train()
    folder = tmp_path / "checkpoint-2"
    assert is_pending(str(folder))
    before = {name: (folder / name).read_bytes() for name in ("model.safetensors", "optimizer.pt", "rng_state.pth")}

    class Stop(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            raise KeyboardInterrupt  # stands for a kill before the next checkpoint

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, [PatienceCallback(50, metric="loss"), Stop()], Broken(), **options).train(
            resume_from_checkpoint=True
        )
    assert not (folder / MARKER).exists()
    assert why_torn(folder) is None
    state = json.loads((folder / "trainer_state.json").read_text())
    assert [entry["step"] for entry in state["log_history"] if "eval_loss" in entry] == [2]
    patience = state["stateful_callbacks"]["PatienceCallback"]["attributes"]["saved"]["patience"]
    assert patience["last"]["step"] == 2
    assert before == {name: (folder / name).read_bytes() for name in before}
    assert names(tmp_path) == ["checkpoint-2"]
    assert get_last_checkpoint(str(tmp_path)) == str(folder)
