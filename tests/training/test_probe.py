"""The probe behind ``eval_tokens_per_batch="auto"`` in a trainer: what it reads, makes and survives; out of memory."""

import functools

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorWithFlattening, LlamaConfig, LlamaForCausalLM

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny


def trainer(model, rows, folder, collator=None, **options):
    args = PlusTrainingArguments(**tiny.quiet(folder, **options))
    return PlusTrainer(model, args, data_collator=collator or tiny.PaddingCollator(), eval_dataset=rows)


def fits(model, tokens, shapes=None):
    """Let batches of more tokens run out of memory."""
    forward = model.forward

    @functools.wraps(forward)
    def limited(input_ids=None, **inputs):
        if shapes is not None:
            shapes.append(tuple(input_ids.shape))
        if input_ids.numel() > tokens:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return forward(input_ids=input_ids, **inputs)

    model.forward = limited
    return model


@pytest.mark.parametrize("batch", [1, 16])
def test_a_probe_that_runs_out_of_memory_goes_down_until_it_fits(batch, tmp_path):
    rows = tiny.rows(40, low=3, high=30)
    whole = trainer(tiny.bert(), rows, tmp_path, eval_tokens_per_batch=None).predict(rows)
    shapes = []
    small = trainer(fits(tiny.bert(), 100, shapes), rows, tmp_path, per_device_eval_batch_size=batch).predict(rows)
    np.testing.assert_allclose(small.predictions, whole.predictions, atol=1e-5)
    assert shapes[0][0] * shapes[0][1] > 400  # the probe did begin above what fits


def test_one_row_that_does_not_fit_is_passed_on(tmp_path):
    with pytest.raises(torch.cuda.OutOfMemoryError, match="CUDA out of memory"):
        trainer(fits(tiny.bert(), 1), tiny.rows(12), tmp_path).evaluate()


@pytest.mark.parametrize("tokens", ["auto", "120", "none"])
@pytest.mark.parametrize("make", [list, Dataset.from_list], ids=["list", "arrow"])
def test_a_padding_free_batch_that_does_not_fit_is_read_again_in_the_first_evaluation(make, tokens, tmp_path):
    rows = make([{"input_ids": row["input_ids"]} for row in tiny.causal_rows(23, low=3, high=12)])
    options = {"collator": DataCollatorWithFlattening(), "per_device_eval_batch_size": 16}
    want = trainer(tiny.llama(), rows, tmp_path, **options).evaluate()["eval_loss"]
    lowered = trainer(fits(tiny.llama(), 40), rows, tmp_path, eval_tokens_per_batch=tokens, **options)
    assert lowered.evaluate()["eval_loss"] == pytest.approx(want, abs=1e-6)


def test_no_probe_makes_the_logits_of_a_batch_whose_loss_alone_is_wanted(tmp_path):
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model, made = LlamaForCausalLM(LlamaConfig(vocab_size=20_000, **sizes)), []
    model.lm_head.register_forward_hook(lambda module, args, out: made.append(out.shape[0] * out.shape[1]))
    ids = torch.randint(3, 20_000, (16, 256)).tolist()
    rows = [{"input_ids": row, "attention_mask": [1] * 256, "labels": row} for row in ids]
    trainer(model, rows, tmp_path, per_device_eval_batch_size=8).evaluate()
    assert 0 < max(made) <= (1 << 20) // 20_000  # the groups that are compared; a batch has 512 tokens and more


class SlowList(list):
    """Counts the rows that are read."""

    reads = 0

    def __getitem__(self, at):
        self.reads += 1
        return super().__getitem__(at)


def test_every_row_of_a_list_that_computes_its_rows_is_read_once(tmp_path):
    rows = SlowList(tiny.rows(60, low=3, high=40))
    trainer(tiny.bert(), rows, tmp_path).evaluate()
    assert rows.reads == 60


@pytest.mark.parametrize("workers", [0, 1])
def test_rows_of_the_probe_are_not_read_again(workers, tmp_path):
    log = tmp_path / "read"

    def transform(batch):
        with log.open("a") as file:
            file.write("".join(f"{row}\n" for row in batch["row"]))
        return {key: value for key, value in batch.items() if key not in ("row", "length")}

    listed = tiny.rows(60, low=3, high=40)
    rows = Dataset.from_list([{**row, "length": len(row["input_ids"]), "row": k} for k, row in enumerate(listed)])
    options = {"remove_unused_columns": False, "dataloader_num_workers": workers}
    found = trainer(tiny.bert(), rows.with_transform(transform), tmp_path, **options).predict(
        rows.with_transform(transform)
    )
    want = trainer(tiny.bert(), listed, tmp_path).predict(listed)
    np.testing.assert_allclose(found.predictions, want.predictions, atol=1e-5)
    assert sorted(map(int, log.read_text().split())) == list(range(60))
