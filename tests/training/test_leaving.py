"""An evaluation can be left between two batches, and then reports nothing."""

import os
import signal

from transformers import TrainerCallback

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from hf_trainplus.training.pending import MARKER, is_pending
from tests.support import tiny


class At(TrainerCallback):
    """Acts in the second batch of the evaluation of a step."""

    def __init__(self, step, act):
        self.step, self.act, self.batches = step, act, 0

    def on_prediction_step(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.batches += 1
            if self.batches == 2:
                self.act()


def make(folder, **options):
    arguments = {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 2, "learning_rate": 1e-2, **options}
    return PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(
            **tiny.quiet(folder, per_device_eval_batch_size=1, eval_tokens_per_batch=None, **arguments)
        ),
        train_dataset=tiny.rows(16),
        eval_dataset=tiny.rows(8),
        data_collator=tiny.PaddingCollator(),
    )


def evaluated(trainer):
    return [entry["step"] for entry in trainer.state.log_history if "eval_loss" in entry]


def test_a_requested_stop_leaves_saves_and_is_resumed_with_the_evaluation(tmp_path):
    whole = make(tmp_path / "whole")
    whole.train()
    trainer = make(tmp_path / "left")
    leaving = At(4, trainer.request_stop)
    trainer.add_callback(leaving)
    trainer.train()
    assert leaving.batches == 2
    assert evaluated(trainer) == [2]
    assert trainer.state.global_step == 4
    folder = tmp_path / "left" / "checkpoint-4"
    assert is_pending(str(folder))
    resumed = make(tmp_path / "left")
    resumed.train(resume_from_checkpoint=str(folder))
    assert not (folder / MARKER).exists()
    assert evaluated(resumed) == [2, 4, 6]
    for name, value in whole.model.state_dict().items():
        assert value.equal(resumed.model.state_dict()[name])


def test_a_signal_leaves_an_evaluation(tmp_path):
    trainer = make(tmp_path, stop_signals="SIGUSR1")
    leaving = At(4, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    trainer.add_callback(leaving)
    trainer.train()
    assert leaving.batches in (2, 3)
    assert evaluated(trainer) == [2]
    assert (tmp_path / "checkpoint-4" / "model.safetensors").is_file()
