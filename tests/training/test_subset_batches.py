"""Losses that only batches have: subsets of whole batches, and intervals whose unit is the batch."""

import numpy as np
import pytest
import torch
from torch import nn

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny
from tests.training.test_batch_mates import mates

SUBSET = {"eval_mode": "subset", "eval_subset_size": 10, "per_device_eval_batch_size": 4}
RUN = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}


class Plain(nn.Module):
    """A classifier of no library: nothing tells the formula of its loss."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(64, 8), nn.Linear(8, 2)

    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.head(self.embed(input_ids).mean(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def make(folder, model, evaluation, **options):
    args = PlusTrainingArguments(**tiny.quiet(folder, **RUN, **options))
    return PlusTrainer(
        model, args, train_dataset=tiny.rows(16), eval_dataset=evaluation, data_collator=tiny.PaddingCollator()
    )


def evaluations(trainer):
    return [entry for entry in trainer.state.log_history if "eval_loss" in entry and "eval_best_step" not in entry]


@pytest.mark.parametrize("model", [mates, Plain])
def test_whole_batches_stand_for_a_loss_of_batches(model, tmp_path, caplog):
    trainer = make(tmp_path, model(), tiny.rows(43), **SUBSET)
    trainer.train()
    logged = evaluations(trainer)
    subset = trainer._scheduled._subsets["eval"]
    assert {entry["eval_examples"] for entry in logged} == {len(subset)}
    assert len(logged) == 4
    assert subset.clusters_total == 11
    assert len(subset) in (11, 12)
    chosen = np.unique(subset.indices // 4)
    assert subset.indices.tolist() == [row for row in range(43) if row // 4 in chosen]
    said = [text for text in caplog.messages if "the subset is 3 of 11 batches of 4 rows" in text]
    assert len(said) == 1


def test_batches_keep_the_loss_that_they_have_in_the_whole(tmp_path):
    trainer = make(tmp_path, mates(), tiny.rows(40), **SUBSET | {"eval_subset_size": 1.0})
    trainer.train()
    assert len(trainer._scheduled._subsets["eval"]) == 40
    full = make(tmp_path, mates(), tiny.rows(40), per_device_eval_batch_size=4)
    full.train()
    assert [entry["eval_loss"] for entry in evaluations(trainer)] == [entry["eval_loss"] for entry in evaluations(full)]


def test_a_resumed_run_goes_on_with_the_same_batches(tmp_path):
    trainer = make(tmp_path, Plain(), tiny.rows(43), **SUBSET)
    trainer.train()
    resumed = make(tmp_path, Plain(), tiny.rows(43), **SUBSET)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    found, wanted = (one._scheduled._subsets["eval"] for one in (resumed, trainer))
    assert (found.indices.tolist(), found.clusters.tolist()) == (wanted.indices.tolist(), wanted.clusters.tolist())
    assert found.clusters_total == wanted.clusters_total
    assert evaluations(resumed)[-1]["eval_loss_ci_low"] == pytest.approx(evaluations(trainer)[-1]["eval_loss_ci_low"])


def test_the_interval_of_a_loss_of_batches_has_the_batch_as_its_unit(tmp_path):
    rows = tiny.rows(400)
    trainer = make(tmp_path, Plain(), rows, per_device_eval_batch_size=8)
    found = trainer.evaluate()
    with torch.no_grad():
        batches = [tiny.PaddingCollator()(rows[start : start + 8]) for start in range(0, 400, 8)]
        of_batches = [trainer.model(**batch)["loss"].item() for batch in batches]
    error = np.std(of_batches, ddof=1) / np.sqrt(50)
    width = found["eval_loss_ci_high"] - found["eval_loss_ci_low"]
    assert width == pytest.approx(2 * 2.01 * error, rel=0.05)
    assert found["eval_loss_exact"] == 1.0


def test_slices_of_a_loss_of_batches_are_not_given(tmp_path):
    rows = [{**row, "topic": "ab"[k % 2]} for k, row in enumerate(tiny.rows(16))]
    trainer = make(tmp_path, Plain(), rows, eval_group_columns="topic", remove_unused_columns=True)
    assert not [key for key in trainer.evaluate() if key.startswith("eval_topic")]


class OwnLoader(PlusTrainer):
    """Makes its evaluation loaders itself, as the trainers of sentence-transformers do."""

    def get_eval_dataloader(self, eval_dataset=None):
        return super().get_eval_dataloader(eval_dataset)


@pytest.mark.parametrize("mode", ["subset", "race"])
def test_rows_of_another_loader_are_not_chosen_and_this_is_said(mode, tmp_path, caplog):
    args = PlusTrainingArguments(**tiny.quiet(tmp_path, **RUN, eval_mode=mode, eval_subset_size=10))
    data = {"train_dataset": tiny.rows(16), "eval_dataset": tiny.rows(43), "data_collator": tiny.PaddingCollator()}
    trainer = OwnLoader(tiny.bert(), args, **data)
    trainer.train()
    assert {entry["eval_examples"] for entry in evaluations(trainer)} == {43}
    said = f"eval_mode='{mode}' evaluates every row here: OwnLoader makes its evaluation loaders itself"
    assert len([text for text in caplog.messages if said in text]) == 1
