"""A signal that reaches rank 1 alone in its fourth step ends the training of both ranks; prints what each has seen.

torchrun --nproc_per_node 2 tests/support/signal_two_ranks.py FOLDER
"""

import os
import signal
import sys
from pathlib import Path

import torch
from transformers import TrainerCallback

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from hf_trainplus.callbacks import stop_signals
from tests.support import tiny
from tests.support.launch import print_everywhere


class Send(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 3 and torch.distributed.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGUSR1)


def main(folder):
    asked, agree = [], stop_signals.agree

    def noted(values):
        asked.append(values)
        return agree(values)

    stop_signals.agree = noted
    arguments = {"max_steps": 400, "save_strategy": "steps", "save_steps": 500, "ddp_backend": "gloo"}
    trainer = PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, **arguments)),
        train_dataset=tiny.rows(16),
        data_collator=tiny.PaddingCollator(),
        callbacks=[Send()],
    )
    trainer.train()
    callback = next(one for one in trainer.callback_handler.callbacks if hasattr(one, "stop_reason"))
    step = trainer.state.global_step
    torch.distributed.barrier()
    saved = (Path(folder) / f"checkpoint-{step}" / "model.safetensors").is_file()
    print_everywhere({"step": step, "reason": callback.stop_reason.value, "saved": saved, "asked": len(asked)})


if __name__ == "__main__":
    main(sys.argv[1])
