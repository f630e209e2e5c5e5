"""Two ranks evaluate losses that are not means over targets; prints what both find, and what an out of memory does."""

import sys

import torch

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny
from tests.support.launch import print_everywhere
from tests.training.test_batch_mates import RowMeans, causal_rows, mates
from tests.training.test_probe import fits
from tests.training.test_subset_batches import SUBSET, evaluations, make


def evaluate(model, rows, folder):
    args = PlusTrainingArguments(**tiny.quiet(folder, per_device_eval_batch_size=3))
    trainer = PlusTrainer(model, args, eval_dataset=rows, data_collator=tiny.PaddingCollator())
    return [trainer.evaluate()["eval_loss"] for _ in range(2)]


def subset(folder, ranks=2):
    """Return the rows and the losses of a run that evaluates whole batches and learns nothing."""
    options = {**SUBSET, "per_device_train_batch_size": 4 // ranks, "learning_rate": 0.0}
    trainer = make(folder, mates(), tiny.rows(43), **options)
    trainer.train()
    logged = [[entry["eval_loss"], entry["eval_loss_ci_low"], entry["eval_examples"]] for entry in evaluations(trainer)]
    return trainer._scheduled._subsets["eval"].indices.tolist(), logged


def main(folder):
    rows, few = tiny.rows(60, low=3, high=40), fits(tiny.bert(), 100)
    found = {
        "mates": evaluate(mates(), rows, folder),
        "row_means": evaluate(RowMeans(tiny.llama(initializer_range=0.8).config), causal_rows(), folder),
        "small": evaluate(few, rows, folder),
        "subset": subset(folder),
    }
    try:
        evaluate(fits(tiny.bert(), 1), rows, folder)
    except (torch.cuda.OutOfMemoryError, RuntimeError) as error:
        found["one_row"] = str(error)
    print_everywhere(found)


if __name__ == "__main__":
    main(sys.argv[1])
