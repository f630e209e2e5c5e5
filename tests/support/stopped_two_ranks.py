"""A signal that reaches rank 1 alone leaves an evaluation in training on both ranks; prints one JSON line on rank 0.

Arguments: the output folder, ``batch`` or ``metrics`` (where the signal comes), and a budget or ``none``.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from transformers import TrainerCallback

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from hf_trainplus.training.pending import is_pending
from tests.support import tiny
from tests.support.launch import print_everywhere


class Send(TrainerCallback):
    """Sends the signal in the first batch of the second evaluation, or in its last one."""

    def __init__(self, place):
        self.place, self.batches = place, 0

    def on_prediction_step(self, args, state, control, **kwargs):
        self.batches += state.global_step == 4
        if self.batches == (1 if self.place == "batch" else 4) and torch.distributed.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGUSR1)


def main(folder, place, budget):
    arguments = tiny.quiet(folder, per_device_eval_batch_size=1, eval_tokens_per_batch=None, max_steps=8)
    trainer = PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**arguments | {"eval_strategy": "steps", "eval_steps": 2, "budget": budget}),
        train_dataset=tiny.rows(32),
        eval_dataset=tiny.rows(8),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=lambda prediction: {"rows": len(prediction.label_ids)},
        callbacks=[send := Send(place)],
    )
    trainer.train()
    callback = next(one for one in trainer.callback_handler.callbacks if hasattr(one, "stop_reason"))
    found = {
        "step": trainer.state.global_step,
        "reason": callback.stop_reason.value,
        "batches": send.batches,
        "evaluated": [entry["step"] for entry in trainer.state.log_history if "eval_loss" in entry],
        "owed": is_pending(str(Path(folder) / "checkpoint-4")),
    }
    print_everywhere(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
