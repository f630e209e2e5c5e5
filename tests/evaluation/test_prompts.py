"""Prompts: cut where the answer begins, put to the right side, read once, sorted by length."""

import pytest
import torch

from hf_trainplus.evaluation.loading import PlannedLoader, WindowSizes
from hf_trainplus.evaluation.prompt_rows import PromptCollator, PromptRows, prompt_length
from hf_trainplus.evaluation.prompts import decoder_only_inputs, encoder_decoder_inputs
from tests.support import tiny

ROWS = [
    {"input_ids": [5, 6, 7, 8], "attention_mask": [1] * 4, "labels": [-100, -100, 7, 8]},
    {"input_ids": [9, 10, 11], "attention_mask": [1] * 3, "labels": [-100, 10, -100]},
    {"input_ids": [12, 13, 14], "attention_mask": [1] * 3, "labels": [-100] * 3},
]


@pytest.mark.parametrize("collator", [tiny.PaddingCollator(), tiny.PaddingCollator("left", extra=2)])
def test_prompts_come_out_alike_from_either_padding(collator):
    found = decoder_only_inputs(collator(ROWS), pad_id=3)
    assert found.inputs["input_ids"].tolist() == [[3, 5, 6], [3, 3, 9], [12, 13, 14]]
    assert found.inputs["attention_mask"].tolist() == [[0, 1, 1], [0, 0, 1], [1, 1, 1]]
    assert found.references.tolist() == [[7, 8], [10, -100], [-100, -100]]
    assert found.prompt_width == found.begun == 3


def test_without_labels_all_of_the_input_is_the_prompt():
    batch = {"input_ids": torch.tensor([[5, 6]])}
    found = decoder_only_inputs(batch, pad_id=0)
    assert found.inputs["input_ids"].tolist() == [[5, 6]]
    assert found.references is None


def test_what_goes_along_is_cut_alike_and_the_rest_passes():
    batch = tiny.PaddingCollator()(ROWS)
    batch["token_type_ids"] = batch["input_ids"] + 100
    batch["position_ids"] = torch.arange(4).expand(3, 4)
    batch["pixel_values"] = torch.rand(3, 2, 2)
    found = decoder_only_inputs(batch, pad_id=0)
    assert found.inputs["token_type_ids"].tolist() == [[0, 105, 106], [0, 0, 109], [112, 113, 114]]
    assert found.inputs["pixel_values"] is batch["pixel_values"]
    assert sorted(found.inputs) == ["attention_mask", "input_ids", "pixel_values", "token_type_ids"]


def test_the_batch_itself_is_not_changed():
    batch = tiny.PaddingCollator()(ROWS)
    before = {key: value.clone() for key, value in batch.items()}
    decoder_only_inputs(batch, pad_id=0)
    assert all(torch.equal(before[key], batch[key]) for key in before)


def test_a_prompt_of_its_own_comes_first():
    rows = [{**row, "prompt_input_ids": [20 + k] * (k + 1)} for k, row in enumerate(ROWS)]
    batch = PromptCollator(tiny.PaddingCollator())(rows)
    found = decoder_only_inputs(batch, pad_id=3)
    assert found.inputs["input_ids"].tolist() == [[3, 3, 20], [3, 21, 21], [22, 22, 22]]
    assert found.references.tolist() == [[7, 8], [10, -100], [-100, -100]]
    assert not {"prompt_input_ids", "prompt_attention_mask"} & set(found.inputs)


def test_the_collator_never_sees_the_prompt():
    seen = []

    def collate(rows):
        seen.extend(rows)
        return {"input_ids": torch.tensor([[1]])}

    PromptCollator(collate)([{"input_ids": [1], "prompt_input_ids": [2], "prompt_attention_mask": [1]}])
    assert seen == [{"input_ids": [1]}]


def test_a_row_without_a_prompt_is_named():
    rows = [ROWS[0], {**ROWS[1], "labels": [9, 10, 11]}]
    with pytest.raises(ValueError, match=r"row 41 has no prompt.*completion-only labels.*prompt_input_ids"):
        decoder_only_inputs(tiny.PaddingCollator()(rows), pad_id=0, positions=[40, 41])


def test_rows_laid_end_to_end_are_refused():
    with pytest.raises(ValueError, match=r"3 rows has input_ids of shape \(1, 10\)"):
        decoder_only_inputs({"input_ids": torch.ones(1, 10)}, pad_id=0, positions=[0, 1, 2])


def test_no_ids_are_refused():
    with pytest.raises(ValueError, match=r"needs input_ids.*\['pixel_values'\]"):
        decoder_only_inputs({"pixel_values": torch.ones(1, 3)}, pad_id=0)


def test_an_encoder_keeps_its_inputs_and_the_answer_is_not_given_away():
    batch = {"input_ids": torch.ones(2, 5), "labels": torch.ones(2, 3), "decoder_input_ids": torch.ones(2, 3)}
    found = encoder_decoder_inputs({**batch, "decoder_attention_mask": torch.ones(2, 3)})
    assert list(found.inputs) == ["input_ids"]
    assert found.begun == 1
    started = encoder_decoder_inputs({**batch, "decoder_input_ids": torch.ones(2, 4)})
    assert started.begun == 4


@pytest.mark.parametrize(
    ("row", "length"),
    [
        (ROWS[0], 2),
        (ROWS[2], 3),
        ({"input_ids": [1, 2, 3], "labels": 1}, 3),
        ({"input_ids": [1, 2], "labels": [5, 6, 7]}, 2),
        ({"input_ids": [1, 2], "prompt_input_ids": [1]}, 1),
        ({"pixel_values": [0.5]}, None),
    ],
)
def test_prompt_lengths(row, length):
    assert prompt_length(row) == length


def test_rows_are_sorted_by_their_prompts_and_read_once():
    class Counted(list):
        reads = 0

        def __getitem__(self, position):
            self.reads += 1
            return super().__getitem__(position)

    ids = list(range(4, 16))
    lengths = [3, 9, 1, 8, 2, 7, 4, 6, 5, 10]
    rows = Counted(
        {"input_ids": ids, "attention_mask": [1] * 12, "labels": [-100] * n + ids[n:], "length": 999} for n in lengths
    )
    with PlannedLoader(PromptRows(rows), PromptCollator(tiny.PaddingCollator())) as loader:
        batches = list(loader.run_windows(range(10), WindowSizes(batch_size=2)))
    assert [[lengths[row] for row in batch.positions] for batch in batches[1:]] == [[10, 8], [7, 6], [5, 4], [2, 1]]
    assert rows.reads == 10
    assert (batches[0].inputs["length"] == 999).all(), "the row's own column comes back"


def test_rows_of_other_kinds_pass_as_they_are():
    assert PromptRows([(1, 2)]).__getitems__([0]) == [(1, 2)]
    assert PromptCollator(list)([(1, 2)]) == [(1, 2)]
