"""Run by torchrun with a folder: patience in seconds on two ranks whose clocks run apart."""

import sys
from pathlib import Path

import torch
from transformers import Trainer, TrainingArguments

from hf_trainplus import PatienceCallback
from tests.support import tiny
from tests.support.launch import print_everywhere


class Clock:
    """Counts a second a reading on rank 0, ten on the other."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        self.seconds += 10.0 if torch.distributed.get_rank() else 1.0
        return self.seconds


class Flat(Trainer):
    """A stock Trainer whose loss never improves."""

    def evaluate(self, *args, **kwargs):
        metrics = {"eval_loss": 1.0, "eval_runtime": 0.0}
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    options = {"max_steps": 30, "eval_strategy": "steps", "eval_steps": 1, "ddp_backend": "gloo"}
    trainer = Flat(
        tiny.bert(),
        TrainingArguments(**tiny.quiet(Path(sys.argv[1]), **options)),
        train_dataset=tiny.rows(16),
        eval_dataset=tiny.rows(4),
        data_collator=tiny.PaddingCollator(),
        callbacks=[PatienceCallback(50, unit="seconds", clock=Clock())],
    )
    trainer.train()
    callback = next(one for one in trainer.callback_handler.callbacks if isinstance(one, PatienceCallback))
    print_everywhere([trainer.state.global_step, callback.verdict.waited])
