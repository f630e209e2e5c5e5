"""A run of a plan with steps of a twentieth of a second, for signals to come in; the argument is the output folder.

A file ``running-RANK`` says that steps are taken, ``ended-RANK`` at which step the run ended.
"""

import os
import sys
import time
from pathlib import Path

import torch
from transformers import TrainerCallback

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny
from tests.support.launch import leave


class SlowSteps(TrainerCallback):
    def __init__(self, under_way):
        self.under_way = under_way

    def on_optimizer_step(self, args, state, control, **kwargs):
        time.sleep(0.05)

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            self.under_way.touch()


def main(folder):
    rank = os.environ.get("RANK", "0")
    trainer = PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, save_strategy="steps", save_steps=5000, logging_steps=5000)),
        train_dataset=tiny.rows(64),
        data_collator=tiny.PaddingCollator(),
        callbacks=[SlowSteps(Path(folder, f"running-{rank}"))],
    )
    trainer.train()
    Path(folder, f"ended-{rank}").write_text(str(trainer.state.global_step))


if __name__ == "__main__":
    main(sys.argv[1])
    if torch.distributed.is_initialized():
        leave()
