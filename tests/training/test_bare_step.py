"""A language model's own loss is not computed again once the rows' losses are known to make it up."""

import numpy as np
import pytest
import torch
from transformers import Trainer, TrainingArguments

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from tests.support import tiny

ROWS = 40
DATA = tiny.causal_rows(ROWS, low=9, high=10, masked=(3,))  # of one length, so that stock pads as we do
COMMON = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "per_device_eval_batch_size": 4}


def counted(model, with_labels, changes=False):
    """Note of each pass whether it had labels; ``changes`` gives other logits without them."""

    def note(module, args, kwargs):
        with_labels.append(kwargs.get("labels") is not None)

    def change(module, args, kwargs, output):
        if changes and kwargs.get("labels") is None:
            output.logits = output.logits + torch.arange(tiny.VOCABULARY)
        return output

    model.register_forward_pre_hook(note, with_kwargs=True)
    model.register_forward_hook(change, with_kwargs=True)
    return model


def metric(prediction):
    kept = prediction.predictions
    return {"sum": float(np.where(kept == -100, 0, kept).sum()), "labels": float((prediction.label_ids != -100).sum())}


def trainer(folder, model, kind=PlusTrainer, compute=metric, **options):
    arguments = PlusTrainingArguments if issubclass(kind, PlusTrainer) else TrainingArguments
    given = {"eval_tokens_per_batch": "none"} if issubclass(kind, PlusTrainer) else {}
    return kind(
        model,
        arguments(str(folder), **COMMON, **given, **options),
        eval_dataset=DATA,
        data_collator=tiny.PaddingCollator(),
        compute_metrics=compute,
    )


@pytest.mark.parametrize("make", [tiny.llama, tiny.gpt2])
def test_labels_are_given_to_the_checked_batches_only(make, tmp_path):
    seen = []
    ours = trainer(tmp_path, counted(make(), seen))
    first = ours.evaluate()
    batches = ROWS // 4
    assert seen == [True] * 3 + [True, False] + [False] * (batches - 4)  # the fourth is run both ways, once
    seen.clear()
    again = ours.evaluate()
    assert seen == [True] * 3 + [False] * (batches - 3)
    plain = trainer(tmp_path, make(), kind=Trainer).evaluate()
    for key in ("eval_sum", "eval_labels"):
        assert first[key] == again[key] == pytest.approx(plain[key], rel=1e-6)
    full = []

    class Keeps(PlusTrainer):
        def compute_loss(self, model, inputs, *args, **kwargs):
            return super().compute_loss(model, inputs, *args, **kwargs)

    theirs = trainer(tmp_path, counted(make(), full), kind=Keeps).evaluate()
    assert full == [True] * batches
    assert first["eval_loss"] == pytest.approx(theirs["eval_loss"], abs=1e-6)


def test_a_model_that_needs_its_labels_is_always_given_them(tmp_path):
    seen = []
    ours = trainer(tmp_path, counted(tiny.llama(), seen, changes=True))
    found = ours.evaluate()
    assert seen.count(False) == 1
    assert found["eval_sum"] == trainer(tmp_path, tiny.llama()).evaluate()["eval_sum"]
    seen.clear()
    ours.evaluate()
    assert all(seen)


def test_predictions_are_the_same(tmp_path):
    seen = []
    ours = trainer(tmp_path, counted(tiny.llama(), seen)).predict(DATA)
    plain = trainer(tmp_path, tiny.llama(), kind=Trainer).predict(DATA)
    assert not all(seen)
    assert np.abs(ours.predictions - plain.predictions).max() <= 1e-6
    assert np.array_equal(ours.label_ids, plain.label_ids)


def test_preprocessing_is_handed_the_labels(tmp_path):
    handed = []

    def preprocess(logits, labels):
        handed.append((tuple(logits.shape[:2]), tuple(labels.shape)))
        return logits.argmax(-1)

    ours = trainer(tmp_path, tiny.llama())
    ours.preprocess_logits_for_metrics = preprocess
    ours.evaluate()
    assert len(handed) >= ROWS // 4
    assert all(logits == labels for logits, labels in handed)


def test_classifiers_always_have_their_labels(tmp_path):
    seen = []
    PlusTrainer(
        counted(tiny.bert(), seen),
        PlusTrainingArguments(str(tmp_path), **COMMON),
        eval_dataset=tiny.rows(ROWS),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=load_metric("accuracy"),
    ).evaluate()
    assert seen
    assert all(seen)
