"""Trainers that gather rows of a batch over ranks inside ``compute_loss``; prints what each rank evaluates."""

import os
import sys

import torch
from datasets import Dataset

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny
from tests.support.launch import print_everywhere

SIZES = (1, 3, 7, 11)


class Gathers(PlusTrainer):
    """Gathers one value a row, as preference trainers do with rewards; ranks with other counts of rows would fail."""

    loss_scale = 1.0

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        rows = self.accelerator.gather(outputs.logits[:, 0].detach())
        assert len(rows) == len(outputs.logits) * int(os.environ.get("WORLD_SIZE", "1"))
        loss = loss * self.loss_scale
        return (loss, outputs) if return_outputs else loss


class GathersAnotherLoss(Gathers):
    """Its rows' losses do not reproduce its own, so the batches' losses count."""

    loss_scale = 2.0


def evaluations(kind, rows, folder, **options):
    """Two evaluations: what the first one verifies changes the batches of the second."""
    args = PlusTrainingArguments(**tiny.quiet(folder, per_device_eval_batch_size=4, **options))
    trainer = kind(tiny.bert(), args, eval_dataset=rows, data_collator=tiny.PaddingCollator())
    return [[metrics["eval_loss"], metrics["eval_examples"]] for metrics in (trainer.evaluate(), trainer.evaluate())]


def all_evaluations(folder):
    found = {}
    for kind in (Gathers, GathersAnotherLoss):
        for n in SIZES:
            found[f"{kind.__name__}_{n}"] = evaluations(kind, tiny.rows(n), folder)
            for dispatch in (True, False):
                stream = Dataset.from_list(tiny.rows(n)).to_iterable_dataset()
                options = {"accelerator_config": {"dispatch_batches": dispatch}}
                found[f"{kind.__name__}_{n}_stream_{dispatch}"] = evaluations(kind, stream, folder, **options)
    return found


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    print_everywhere(all_evaluations(sys.argv[1]))
