"""Two ranks of which one is slow in one way a case: prints one JSON line a case, as rank 0 sees it.

It is rank 1, but for the cases of a stream: there rank 0 reads for both, by Accelerate's default.

As a script under torchrun, with a folder.
"""

import json
import sys
import time
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from hf_trainplus.callbacks.step_clock import StepClockCallback
from tests.support import tiny
from tests.support.launch import leave

SECONDS = 0.05


class SlowRows(torch.utils.data.Dataset):
    def __init__(self, rows, seconds):
        self.rows, self.seconds = rows, seconds

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return self.rows[index]


class SlowStream(torch.utils.data.IterableDataset):
    def __init__(self, rows, seconds):
        self.rows, self.seconds = rows, seconds

    def __iter__(self):
        for row in self.rows:
            time.sleep(self.seconds)
            yield row


class SlowOptimizer(torch.optim.SGD):
    def __init__(self, parameters, seconds):
        super().__init__(parameters, lr=0.01)
        self.seconds = seconds

    def step(self, closure=None):
        time.sleep(self.seconds)
        return super().step(closure)


class SlowCallback(TrainerCallback):
    def __init__(self, seconds):
        self.seconds = seconds

    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(self.seconds)


def run(case, folder):
    args = TrainingArguments(
        **tiny.quiet(folder, max_steps=6, per_device_train_batch_size=1, logging_steps=3, remove_unused_columns=False),
        average_tokens_across_devices="uncounted" not in case,
    )
    kind, _, stream = case.partition(" of a ")
    slow = SECONDS if args.process_index == (0 if stream else 1) else 0.0
    model = tiny.llama()
    # rows of one length: batches of a stream are put together before they are handed out
    rows = tiny.causal_rows(24, low=8, high=9)
    if case in ("forward", "reduction"):
        model.model.register_forward_pre_hook(lambda *_: time.sleep(slow))
    callback = StepClockCallback(measure_reduction=case == "reduction")
    trainer = Trainer(
        model,
        args,
        train_dataset=(SlowStream if stream else SlowRows)(rows, slow if kind == "data" else 0.0),
        data_collator=tiny.PaddingCollator(),
        callbacks=[SlowCallback(slow)] if kind.startswith("callback") else [],
        optimizers=(SlowOptimizer(model.parameters(), slow) if kind == "optimizer" else None, None),
    )
    callback.attach(trainer)
    trainer.train()
    return callback.summary() | {"last": [entry for entry in trainer.state.log_history if "loss" in entry][-1]}


if __name__ == "__main__":
    for name in (
        "healthy",
        "forward",
        "optimizer",
        "callback",
        "callback uncounted",
        "data",
        "reduction",
        "callback of a stream",
        "data of a stream",
    ):
        summary = run(name, Path(sys.argv[1]) / name)
        sums = [None, None]
        torch.distributed.all_gather_object(sums, sum(summary["seconds"].values()) / summary["total_seconds"])
        if torch.distributed.get_rank() == 0:
            print(json.dumps({"case": name, "sums": sums, **summary}), flush=True)
    leave()
