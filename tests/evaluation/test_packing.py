import numpy as np
import pytest
import torch
from transformers import BatchEncoding, DataCollatorWithFlattening

from hf_trainplus.evaluation.packing import example_of_token, rows_in_batch, split_inputs

ROWS = [
    {"input_ids": [5, 6, 7], "labels": [5, 6, 7]},
    {"input_ids": [8], "labels": [8]},
    {"input_ids": [9, 4], "labels": [9, 4]},
]
FLATTENED = [
    {},
    {"return_seq_idx": True},
    {"return_seq_idx": True, "return_position_ids": False},
    {"return_flash_attn_kwargs": True, "return_position_ids": False},
    {"position_ids_start": 2},
]


@pytest.mark.parametrize("options", FLATTENED)
def test_flattened_batches_are_seen_and_their_examples_found(options):
    batch = DataCollatorWithFlattening(**options)(ROWS)
    assert rows_in_batch(batch, 3) == 1
    assert example_of_token(batch, 3).tolist() == [0, 0, 0, 1, 2, 2]


def test_one_flattened_example_is_one_row():
    batch = DataCollatorWithFlattening()(ROWS[:1])
    assert rows_in_batch(batch, 1) == 1
    assert example_of_token(batch, 1).tolist() == [0, 0, 0]


def test_examples_that_the_collator_left_out_are_not_guessed():
    batch = DataCollatorWithFlattening()([ROWS[0], {"input_ids": [], "labels": []}, ROWS[2]])
    assert example_of_token(batch, 3) is None
    assert example_of_token(batch, 2).tolist() == [0, 0, 0, 1, 1]


def test_batches_without_marks_have_no_examples_to_tell():
    assert example_of_token({"input_ids": torch.zeros(1, 4)}, 2) is None
    assert example_of_token({"position_ids": torch.zeros(2, 4)}, 2) is None
    assert example_of_token({"position_ids": torch.zeros(1, 0)}, 2) is None


@pytest.mark.parametrize(
    ("batch", "n", "rows"),
    [
        ({"input_ids": torch.zeros(4, 7), "labels": torch.zeros(4)}, 4, 4),
        ({"input_ids": torch.zeros(2, 3, 7), "labels": torch.zeros(2)}, 2, 2),
        # patches of several images lie end to end, the text decides
        ({"pixel_values": torch.zeros(40, 9), "input_ids": torch.zeros(2, 7)}, 2, 2),
        ({"pixel_values": torch.zeros(3, 3, 8, 8), "labels": [{}, {}, {}]}, 3, 3),
        ({"anchor_ids": torch.zeros(5, 2), "scale": torch.tensor(1.0)}, 5, 5),
        ({"scale": torch.tensor(1.0)}, 5, None),
        ((torch.zeros(3, 2), torch.zeros(3)), 3, 3),
        (torch.zeros(6, 2), 6, 6),
        (np.zeros((1, 9)), 4, 1),
        ("text", 4, None),
    ],
)
def test_rows_in_batch(batch, n, rows):
    assert rows_in_batch(batch, n) == rows


def test_split_keeps_the_kind_and_every_value():
    batch = BatchEncoding(
        {"input_ids": torch.arange(6).view(3, 2), "texts": ["a", "b", "c"], "temperature": 0.5, "none": None}
    )
    first, second = split_inputs(batch, 3, [(0, 2), (2, 3)])
    assert isinstance(first, BatchEncoding)
    assert first["input_ids"].tolist() == [[0, 1], [2, 3]]
    assert second["input_ids"].tolist() == [[4, 5]]
    assert (first["texts"], second["texts"]) == (["a", "b"], ["c"])
    assert second["temperature"] == 0.5
    assert second["none"] is None
    assert batch["input_ids"].shape == (3, 2)


def test_split_of_nested_batches():
    pair = ({"ids": torch.arange(2)}, torch.arange(2) + 10)
    first, second = split_inputs(pair, 2, [(0, 1), (1, 2)])
    assert (first[0]["ids"].tolist(), first[1].tolist()) == ([0], [10])
    assert (second[0]["ids"].tolist(), second[1].tolist()) == ([1], [11])
    boxes = {"labels": [{"boxes": torch.zeros(2, 4)}, {"boxes": torch.ones(2, 4)}]}
    assert split_inputs(boxes, 2, [(1, 2)])[0]["labels"][0]["boxes"].sum() == 8


def test_examples_that_share_a_row_are_not_cut():
    assert split_inputs(DataCollatorWithFlattening()(ROWS), 3, [(0, 2), (2, 3)]) is None
    assert split_inputs({"pixel_values": torch.zeros(40, 9), "input_ids": torch.zeros(2, 7)}, 2, [(0, 1)]) is None
