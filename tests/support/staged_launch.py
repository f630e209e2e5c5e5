"""A tiny run of a plan, started by a launcher: arguments are the output folder and, for one process, the plan.

Rank 0 prints ``step STEP`` and the processes that took part.
"""

import sys

import torch

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny
from tests.support.launch import leave


def main():
    args = PlusTrainingArguments(
        **tiny.quiet(
            sys.argv[1],
            plan=sys.argv[2] if len(sys.argv) > 2 else None,
            eval_strategy="steps",
            eval_steps=3,
            save_strategy="steps",
            save_steps=1,
            logging_steps=1,
            log_level="error",
            average_tokens_across_devices=False,  # stock's loss is doubled on two processes otherwise, and so its gradients
        )
    )
    trainer = PlusTrainer(
        tiny.bert(num_labels=3),  # a bias that no two processes share evenly
        args,
        train_dataset=tiny.rows(24),
        eval_dataset=tiny.rows(11, seed=3),
        data_collator=tiny.PaddingCollator(),
    )
    output = trainer.train()
    if trainer.is_world_process_zero():
        print(f"step {output.global_step} on {args.world_size}", flush=True)


if __name__ == "__main__":
    main()
    if torch.distributed.is_initialized():
        leave()
