"""A stop asked for on rank 1 leaves an evaluation outside training on both ranks; prints one JSON line on rank 0."""

import sys

import torch
from transformers import TrainerCallback

from hf_trainplus import EvaluationLeft, PlusTrainer, PlusTrainingArguments
from tests.support import tiny
from tests.support.launch import print_everywhere


class SecondBatch(TrainerCallback):
    def __init__(self):
        self.batches, self.trainer = 0, None

    def on_prediction_step(self, args, state, control, **kwargs):
        self.batches += 1
        if self.batches == 2 and torch.distributed.get_rank() == 1:
            self.trainer.request_stop()


def main(folder):
    arguments = tiny.quiet(folder, per_device_eval_batch_size=1, eval_tokens_per_batch=None)
    callback = SecondBatch()
    trainer = callback.trainer = PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**arguments),
        eval_dataset=tiny.rows(8),
        data_collator=tiny.PaddingCollator(),
        callbacks=[callback],
    )
    found = {"left": False, "batches": 0}
    try:
        trainer.evaluate()
    except EvaluationLeft:
        found = {"left": True, "batches": callback.batches}
    found["examples_after"] = trainer.evaluate()["eval_examples"]
    print_everywhere(found)


if __name__ == "__main__":
    main(sys.argv[1])
