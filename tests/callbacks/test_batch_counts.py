import pytest
import torch
from transformers import Trainer

from hf_trainplus import MemoryLeakCallback, PlusTrainer, PlusTrainingArguments
from hf_trainplus.callbacks._batch_counts import BatchCounts
from tests.support import tiny

IDS = torch.ones(4, 7, dtype=torch.int64)


@pytest.mark.parametrize(
    ("batch", "rows", "tokens"),
    [
        ({"input_ids": IDS}, 4, 28),
        ({"task": "sst2", "input_ids": IDS}, 4, 28),
        ({"names": ["a", "b"], "none": None, "empty": [], "input_ids": IDS}, 4, 28),
        ({"scale": torch.tensor(2.0), "input_ids": IDS}, 4, 28),
        # patches of all images in a row, as some vision models take them
        ({"pixel_values": torch.zeros(99, 3), "input_ids": IDS}, 4, 28),
        ({"inner": {"x": torch.zeros(5, 2)}}, 5, None),
        ((IDS, torch.zeros(4)), 4, None),
        (IDS, 4, None),
        ({"task": "sst2"}, None, None),
        ([], None, None),
        (object(), None, None),
    ],
)
def test_whatever_a_batch_holds_its_first_tensor_is_counted(batch, rows, tokens):
    counts = BatchCounts()
    counts.count(batch, "input_ids")
    assert (counts.examples, counts.tokens) == (rows, tokens)


class Named:
    """Collates batches that hold more than tensors."""

    def __call__(self, features):
        return {"task": "sst2", "weights": None, **tiny.PaddingCollator()(features)}


class Popping(Trainer):
    """A trainer whose loss takes what is no input of the model out of the batch."""

    def compute_loss(self, model, inputs, *args, **kwargs):
        assert inputs.pop("task") == "sst2"
        inputs.pop("weights")
        return super().compute_loss(model, inputs, *args, **kwargs)


class PoppingPlus(Popping, PlusTrainer):
    """The same under PlusTrainer."""


def test_a_batch_that_begins_with_text_trains(tmp_path):
    args = PlusTrainingArguments(**tiny.quiet(tmp_path, max_steps=3, remove_unused_columns=False, gpu_monitor=True))
    trainer = PoppingPlus(
        tiny.bert(),
        args,
        train_dataset=tiny.rows(24),
        data_collator=Named(),
        callbacks=[MemoryLeakCallback(every_steps=1, time_share=None)],
    )
    trainer.train()
    assert trainer.state.global_step == 3
    assert trainer.state.log_history[0]["speed/examples_per_second"] > 0
