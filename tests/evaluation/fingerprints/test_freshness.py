"""Stamps of what kept workers hold: equal while nothing changed, different or unknown otherwise."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import DataCollatorForSeq2Seq, DataCollatorWithPadding, PreTrainedTokenizerFast

from hf_trainplus.evaluation.fingerprints.freshness import MOST_VALUES, content_stamp, live_stamp
from tests.support import tiny


def tokenizer():
    words = models.WordLevel({"[PAD]": 0, "a": 1}, unk_token="a")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), pad_token="[PAD]")


class Scaled:
    """A collator with a setting of its own."""

    shared = 1

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, rows):
        return torch.tensor([row["x"] for row in rows]) * self.scale * self.shared


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, at):
        raise AssertionError("a row was read")


class FromDisk(Rows):
    def __getitem__(self, at):
        with open(self.rows[at]) as file:
            return {"x": file.read()}


def set_item(value, key, new):
    value[key] = new


def flip(batch):
    return {**batch, "labels": [1 - label for label in batch["labels"]]}


CHANGES = {
    "list": (lambda: tiny.rows(4), lambda rows: rows[3].update(labels=5)),
    "inner list": (lambda: tiny.rows(4), lambda rows: set_item(rows[0]["input_ids"], 0, 9)),
    "torch dataset": (lambda: Rows(tiny.rows(4)), lambda data: data.rows[1].update(labels=5)),
    "subset": (lambda: torch.utils.data.Subset(tiny.rows(4), [1, 2]), lambda data: data.dataset[1].update(labels=5)),
    "tensors": (lambda: torch.utils.data.TensorDataset(torch.zeros(4)), lambda data: set_item(data.tensors[0], 0, 1.0)),
    "arrays": (lambda: Rows(np.zeros(4)), lambda data: set_item(data.rows, 0, 1.0)),
    "collator": (lambda: Scaled(2), lambda collator: setattr(collator, "scale", 3)),
    "tokenizer's side": (
        lambda: DataCollatorWithPadding(tokenizer()),
        lambda collator: setattr(collator.tokenizer, "padding_side", "left"),
    ),
    "transform": (lambda: Dataset.from_list(tiny.rows(4)), lambda data: data.set_transform(flip)),
    "format": (lambda: Dataset.from_list(tiny.rows(4)), lambda data: data.set_format("torch")),
    "table": (lambda: Dataset.from_list(tiny.rows(4)), lambda data: setattr(data, "_data", data.data.slice(0, 2))),
    "subset of a table": (
        lambda: torch.utils.data.Subset(Dataset.from_list(tiny.rows(4)), [1]),
        lambda data: data.dataset.set_format("numpy"),
    ),
    "sequence to sequence": (
        lambda: DataCollatorForSeq2Seq(tokenizer(), model=tiny.bert()),
        lambda collator: setattr(collator, "label_pad_token_id", -1),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_place_is_seen_and_nothing_else_is(name):
    make, change = CHANGES[name]
    value = make()
    before = content_stamp(value, {"workers": 1})
    assert before is not None
    assert before == content_stamp(value, {"workers": 1})
    assert before != content_stamp(value, {"workers": 2})
    change(value)
    after = content_stamp(value, {"workers": 1})
    assert after is not None
    assert after != before


def test_a_setting_of_the_class_counts(monkeypatch):
    before = content_stamp(Scaled(1))
    monkeypatch.setattr(Scaled, "shared", 2)
    assert content_stamp(Scaled(1)) != before


def test_a_model_that_only_sequence_to_sequence_collators_ask_does_not_count():
    collator = DataCollatorForSeq2Seq(tokenizer(), model=tiny.bert())
    before = content_stamp(collator)
    with torch.no_grad():
        next(collator.model.parameters()).add_(1)
    assert content_stamp(collator) == before


@pytest.mark.parametrize(
    "value",
    [
        lambda: Scaled(tiny.bert()),
        lambda: FromDisk(["a"]),
        lambda: Rows(iter(()) and (row for row in ())),
        lambda: Rows(torch.zeros(256 * MOST_VALUES)),
        lambda: [[k] for k in range(MOST_VALUES)],
    ],
    ids=["model", "files", "generator", "large tensor", "many rows"],
)
def test_what_cannot_be_known_cheaply_is_unknown(value):
    assert content_stamp(value()) is None


def test_the_look_is_bounded():
    assert content_stamp([0] * 10, most_values=13) is not None
    assert content_stamp([0] * 10, most_values=12) is None


def test_an_object_that_cannot_be_looked_at_is_unknown():
    class Broken:
        def __getstate__(self):
            raise SystemError("not now")

    assert content_stamp(Broken()) is None


def test_without_workers_only_tables_are_compared_and_by_identity():
    data = Dataset.from_list(tiny.rows(4))
    before = live_stamp(data, 1)
    assert live_stamp(tiny.rows(4), 1) is None
    assert before is not None
    assert before == live_stamp(data, 1)
    assert before != live_stamp(data, 2)
    data.set_transform(flip)
    assert live_stamp(data, 1) != before
    same = live_stamp(data, 1)
    data.set_transform(lambda batch: batch)
    assert live_stamp(data, 1) != same
