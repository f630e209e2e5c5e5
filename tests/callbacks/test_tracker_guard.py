import pytest
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.integrations import TensorBoardCallback

from hf_trainplus.callbacks.tracker_guard import guard_trackers
from tests.support import tiny


class FakeBoard(TensorBoardCallback):
    """A tracker that transformers knows, without a backend."""

    def __init__(self, fails_at=None, error=ConnectionError):
        self.calls, self.fails_at, self.error = [], fails_at, error

    def on_train_begin(self, args, state, control, **kwargs):
        self.calls.append("on_train_begin")

    def on_train_end(self, args, state, control, **kwargs):
        self.calls.append("on_train_end")

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.calls.append("on_log")
        if state.global_step == self.fails_at:
            raise self.error("the server is gone")


def make(folder, *callbacks):
    return Trainer(
        tiny.bert(),
        TrainingArguments(**tiny.quiet(folder, max_steps=4)),
        train_dataset=tiny.rows(16),
        data_collator=tiny.PaddingCollator(),
        callbacks=list(callbacks),
    )


def test_a_tracker_that_raises_is_reported_once_and_then_skipped(tmp_path, warned):
    broken, sound = FakeBoard(fails_at=2), FakeBoard()
    trainer = make(tmp_path, broken, sound)
    assert guard_trackers(trainer) == [broken, sound]
    trainer.train()
    assert trainer.state.global_step == 4
    assert broken.calls == ["on_train_begin", "on_log", "on_log"]
    assert sound.calls == ["on_train_begin", *["on_log"] * 5, "on_train_end"]
    assert warned == ["FakeBoard failed in on_log (ConnectionError: the server is gone); training goes on without it."]


def test_it_keeps_its_class_and_is_guarded_once(tmp_path):
    broken = FakeBoard(fails_at=1)
    trainer = make(tmp_path, broken)
    guard_trackers(trainer)
    method = broken.on_log
    guard_trackers(trainer)
    assert broken.on_log is method
    assert trainer.pop_callback(TensorBoardCallback) is broken


def test_another_callbacks_exception_still_ends_training(tmp_path):
    class Mine(TrainerCallback):
        def on_log(self, *args, **kwargs):
            raise ValueError("mine")

    trainer = make(tmp_path, Mine())
    assert guard_trackers(trainer) == []
    with pytest.raises(ValueError, match="mine"):
        trainer.train()


def test_ctrl_c_passes_through(tmp_path):
    trainer = make(tmp_path, FakeBoard(fails_at=1, error=KeyboardInterrupt))
    guard_trackers(trainer)
    with pytest.raises(KeyboardInterrupt, match="the server is gone"):
        trainer.train()
