"""Metric functions and predictions of padding-free batches: rows as they are with padding."""

from __future__ import annotations

import numpy as np
import pytest
import torchmetrics
from transformers import DataCollatorWithFlattening

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from tests.support import tiny

ROWS = [{key: row[key] for key in ("input_ids", "labels")} for row in tiny.causal_rows(23, low=3, high=12)]


class Unmarked(DataCollatorWithFlattening):
    """One long row, and nothing that says where its examples begin."""

    def __call__(self, features):
        batch = super().__call__(features)
        return {"input_ids": batch["input_ids"], "labels": batch["labels"]}


def trainer(tmp_path, collator, metric=None, **options):
    args = PlusTrainingArguments(**tiny.quiet(tmp_path, **{"per_device_eval_batch_size": 4} | options))
    return PlusTrainer(tiny.llama(), args, eval_dataset=ROWS, data_collator=collator, compute_metrics=metric)


def right(prediction):
    """Share of right next tokens, and what the function was given."""
    ids, labels = np.asarray(prediction.predictions).argmax(-1)[:, :-1], prediction.label_ids[:, 1:]
    return {"right": float((ids == labels)[labels != -100].mean()), "rows": len(labels)}


def test_a_function_is_given_one_row_an_example(tmp_path):
    padded = trainer(tmp_path, tiny.PaddingCollator(), right).evaluate()
    flat = trainer(tmp_path, DataCollatorWithFlattening(), right).evaluate()
    assert flat["eval_rows"] == padded["eval_rows"] == 23
    assert flat["eval_right"] == pytest.approx(padded["eval_right"])


def test_predict_hands_over_rows_in_dataset_order(tmp_path):
    padded = trainer(tmp_path, tiny.PaddingCollator()).predict(ROWS)
    flat = trainer(tmp_path, DataCollatorWithFlattening()).predict(ROWS)
    counted = padded.label_ids != -100
    assert flat.predictions.shape == padded.predictions.shape
    np.testing.assert_allclose(flat.predictions[counted], padded.predictions[counted], atol=1e-5)
    # the collator masks each example's first label, which is no target
    np.testing.assert_array_equal(flat.label_ids[:, 1:], padded.label_ids[:, 1:])


@pytest.mark.parametrize("shift", [True, False])
def test_metric_objects_say_the_same(shift, tmp_path):
    metrics = [load_metric("token_accuracy", shift=shift)]
    if not shift:
        metrics.append(torchmetrics.Accuracy(task="multiclass", num_classes=40, ignore_index=-100, average="micro"))
    flat = trainer(tmp_path, DataCollatorWithFlattening(), metrics).evaluate()
    one_by_one = trainer(tmp_path, DataCollatorWithFlattening(), metrics, per_device_eval_batch_size=1).evaluate()
    names = [key for key in one_by_one if "ccuracy" in key and "ci" not in key]
    assert names
    assert {key: flat[key] for key in names} == pytest.approx({key: one_by_one[key] for key in names})


def test_batches_that_do_not_say_where_examples_begin_are_one_row_each(tmp_path):
    found = trainer(tmp_path, Unmarked(), right, eval_tokens_per_batch="none").evaluate()
    assert found["eval_rows"] == 6
    assert found["eval_examples"] == 23


def test_a_function_that_cannot_be_called_is_named(tmp_path, monkeypatch):
    said = []
    asked = trainer(tmp_path, DataCollatorWithFlattening(), right)
    monkeypatch.setattr(asked._runner, "say_once", said.append)
    monkeypatch.setattr("hf_trainplus.evaluation.loop.PackedRows.of", lambda inputs, rows: None)
    assert "eval_right" not in asked.evaluate()
    assert any("compute_metrics is not called" in message for message in said)
