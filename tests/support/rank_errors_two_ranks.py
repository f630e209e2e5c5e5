"""One of two ranks fails inside a scheduled evaluation; prints what each rank saw and what is on disk afterwards."""

import functools
import os
import sys
from pathlib import Path

import torch
from datasets import Dataset
from transformers import TrainerCallback

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from tests.support import tiny
from tests.support.launch import print_everywhere

RANK = int(os.environ.get("RANK", "0"))


class BadRow(torch.utils.data.Dataset):
    """Row 9 cannot be read: only the rank that is dealt it fails."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        if i == 9:
            raise KeyError("row 9")
        return self.rows[i]


class BadStream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from tiny.rows(5)
        if RANK == 1 or "DISPATCHED" in os.environ:
            raise KeyError("row 9")
        yield from tiny.rows(6)


class BadCollator(tiny.PaddingCollator):
    def __call__(self, features):
        if RANK == 1 and not torch.is_grad_enabled():
            raise KeyError("collator")
        return super().__call__(features)


class Fails(TrainerCallback):
    """Fails on rank 1, or on rank 0 as a tracker does, that is called on the main process only."""

    def __init__(self, event, rank):
        self.event, self.rank = event, rank

    def _fail(self):
        if self.rank == RANK:
            raise KeyError(self.event)

    def on_prediction_step(self, *_, **__):
        if self.event == "prediction_step":
            self._fail()

    def on_evaluate(self, *_, **__):
        if self.event == "evaluate":
            self._fail()


def failing_forward(model, at):
    forward, calls = model.forward, []

    @functools.wraps(forward)
    def fails(*args, **kwargs):
        if RANK == 1 and not model.training:
            calls.append(1)
            if len(calls) >= at:
                raise KeyError("forward")
        return forward(*args, **kwargs)

    model.forward = fails
    return model


def cases():
    """Name -> what differs from a run that succeeds."""
    rows, causal, small = tiny.rows(11), tiny.causal_rows(11), {"eval_tokens_per_batch": "none"}
    lengths = [{**row, "length": len(row["input_ids"])} for row in rows]
    return {
        "row": {"eval_dataset": BadRow(rows)},
        "row_in_order": {"eval_dataset": BadRow(rows), "eval_do_concat_batches": False},
        "collator": {"data_collator": BadCollator(), "eval_dataset": Dataset.from_list(lengths)},
        "stream": {"eval_dataset": BadStream(), "accelerator_config": {"dispatch_batches": False}},
        "forward": {"model": failing_forward(tiny.bert(), 2), **small},
        "forward_of_the_last_batch": {"model": failing_forward(tiny.bert(), 3), **small},
        "forward_of_a_language_model": {"model": failing_forward(tiny.llama(), 1), "rows": causal},
        "prediction_step": {"callbacks": [Fails("prediction_step", 1)]},
        "evaluate": {"callbacks": [Fails("evaluate", 0)]},
        "metric_object": {
            "model": failing_forward(tiny.bert(), 2),
            "compute_metrics": load_metric("accuracy"),
            **small,
        },
    }


def train(folder, on_eval_error, rows=None, model=None, **options):
    rows = rows or tiny.rows(11)
    taken = {name: options.pop(name) for name in ("callbacks", "compute_metrics") if name in options}
    data = {"eval_dataset": rows, "data_collator": tiny.PaddingCollator(), **options}
    parts = {name: data.pop(name) for name in ("eval_dataset", "data_collator")}
    args = PlusTrainingArguments(
        **tiny.quiet(
            folder,
            max_steps=4,
            eval_strategy="steps",
            eval_steps=2,
            per_device_eval_batch_size=2,
            on_eval_error=on_eval_error,
            **data,
        )
    )
    trainer = PlusTrainer(model or tiny.bert(), args, train_dataset=rows, **parts, **taken)
    try:
        trainer.train()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["trained", trainer.state.global_step]


def main(folder):
    found = {}
    for on_eval_error in ("raise", "continue"):
        for name, options in cases().items():
            place = Path(folder, f"{name}_{on_eval_error}")
            outcome = train(place, on_eval_error, **options)
            torch.distributed.barrier()
            marked = sorted(file.parent.name for file in place.glob("*/trainplus_pending_evaluation.json"))
            found[f"{name}_{on_eval_error}"] = {"outcome": outcome, "marked": marked}
    print_everywhere(found)


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    main(sys.argv[1])
