"""eval_do_concat_batches=False: a metric function is given upstream's list of batches."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from transformers import Trainer, TrainingArguments
from transformers.modeling_outputs import ModelOutput

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny
from tests.support.launch import ROOT, torchrun


class Detector(nn.Module):
    """Scores of shapes that differ from batch to batch, and labels that are one dictionary a row."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(4, 3)

    def forward(self, pixel_values=None, labels=None):
        scores = self.head(pixel_values)
        targets = torch.stack([row["class_labels"].sum() for row in labels]).float()
        return ModelOutput(
            loss=(scores.mean(dim=(1, 2)) - targets).pow(2).mean(), logits=scores, boxes=pixel_values.sum(-1)
        )


def collate(rows):
    width = max(len(row["pixel_values"]) for row in rows)
    padded = torch.zeros(len(rows), width, 4)
    for place, row in enumerate(rows):
        padded[place, : len(row["pixel_values"])] = torch.tensor(row["pixel_values"])
    labels = [{"class_labels": torch.tensor(row["labels"]), "id": torch.tensor([row["id"]])} for row in rows]
    return {"pixel_values": padded, "labels": labels}


def images(n=7):
    rng = np.random.default_rng(0)
    return [
        {"pixel_values": rng.random((int(rng.integers(2, 9)), 4)).astype(np.float32), "labels": [k % 3, 1], "id": k}
        for k in range(n)
    ]


class Seen:
    """Keeps what it is given."""

    def __init__(self):
        self.given = []

    def __call__(self, prediction):
        self.given.append((prediction.predictions, prediction.label_ids))
        return {"batches": len(prediction.predictions)}


def evaluated(kind, folder, model, rows, collator, metric, **options):
    arguments = TrainingArguments if kind is Trainer else PlusTrainingArguments
    options = {
        "per_device_eval_batch_size": 3,
        "eval_do_concat_batches": False,
        "remove_unused_columns": False,
    } | options
    trainer = kind(
        model,
        arguments(**tiny.quiet(folder, **options)),
        eval_dataset=rows,
        data_collator=collator,
        compute_metrics=metric,
    )
    return trainer, trainer.evaluate()


def same(first, second):
    if isinstance(first, (list, tuple)):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            same(one, other)
    elif isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            same(first[key], second[key])
    else:
        assert np.shape(first) == np.shape(second)
        np.testing.assert_allclose(first, second, atol=1e-6)


def test_a_detector_is_given_what_upstream_gives(tmp_path):
    stock, ours = Seen(), Seen()
    options = {"include_for_metrics": ["boxes"]}  # outputs beside the main one are asked for by name
    evaluated(Trainer, tmp_path, Detector(), images(9), collate, stock, **options)
    _, metrics = evaluated(PlusTrainer, tmp_path, Detector(), images(9), collate, ours, **options)
    same(ours.given, stock.given)
    predictions, labels = ours.given[0]
    assert [batch[0].shape[0] for batch in predictions] == [3, 3, 3]
    assert len({batch[0].shape[1] for batch in predictions}) > 1  # no batch is padded to the width of another
    assert [int(row["id"][0]) for batch in labels for row in batch] == list(range(9))
    assert metrics["eval_batches"] == 3


def test_the_labels_of_a_short_last_batch_stay_whole(tmp_path):
    """Upstream cuts every tensor inside them to the number of rows in that batch."""
    ours = Seen()
    evaluated(PlusTrainer, tmp_path, Detector(), images(7), collate, ours)
    predictions, labels = ours.given[0]
    assert [len(batch) for batch in predictions] == [3, 3, 1]
    assert labels[2][0]["class_labels"].tolist() == [0, 1]


@pytest.mark.parametrize("predictions", [None, "argmax"])
def test_a_classifier_and_its_reduction(predictions, tmp_path):
    stock, ours = Seen(), Seen()
    rows, collator = tiny.rows(8), tiny.PaddingCollator()
    evaluated(Trainer, tmp_path, tiny.bert(), rows, collator, stock)
    evaluated(PlusTrainer, tmp_path, tiny.bert(), rows, collator, ours, eval_predictions=predictions)
    wanted = [
        (logits.argmax(-1) if predictions else logits, label) for logits, label in zip(*stock.given[0], strict=True)
    ]
    assert len(wanted) == 3
    same(list(zip(*ours.given[0], strict=True)), wanted)


def test_predict_returns_batches_as_upstream_does(tmp_path):
    rows, collator, metric = tiny.rows(8), tiny.PaddingCollator(), Seen()
    stock, _ = evaluated(Trainer, tmp_path, tiny.bert(), rows, collator, Seen())
    ours, _ = evaluated(PlusTrainer, tmp_path, tiny.bert(), rows, collator, metric)
    wanted, found = stock.predict(rows), ours.predict(rows)
    same(found.predictions, wanted.predictions)
    same(found.label_ids, wanted.label_ids)
    assert len(metric.given) == 2
    assert found.metrics["test_loss"] == pytest.approx(wanted.metrics["test_loss"], abs=1e-6)


def test_losses_and_inputs_come_in_the_same_batches(tmp_path):
    def sizes(prediction):
        together = zip(prediction.predictions, prediction.losses, prediction.inputs, strict=True)
        assert all(len(logits) == len(losses) == len(inputs) for logits, losses, inputs in together)
        return {"rows": sum(map(len, prediction.losses))}

    _, metrics = evaluated(
        PlusTrainer,
        tmp_path,
        tiny.bert(),
        tiny.rows(8),
        tiny.PaddingCollator(),
        sizes,
        include_for_metrics=["loss", "inputs"],
    )
    assert metrics["eval_rows"] == 8


def test_a_metric_that_needs_arrays_is_given_arrays(tmp_path):
    from datasets import Value

    class Module:
        """Stands for a metric of the evaluate library, whose scripts are not at hand without a network."""

        name, features, inputs_description = "share", {"predictions": Value("int64"), "references": Value("int64")}, ""

        keep_in_memory, num_process, process_id = False, 1, 0

        def add_batch(self, predictions, references):
            raise AssertionError("all rows are computed at once")

        def compute(self, predictions=None, references=None, **kwargs):
            return {"share": float(np.mean(np.asarray(predictions) == np.asarray(references)))}

    rows, collator = tiny.rows(8), tiny.PaddingCollator()
    values = [
        evaluated(PlusTrainer, tmp_path, tiny.bert(), rows, collator, Module(), eval_do_concat_batches=concat)[1]
        for concat in (True, False)
    ]
    assert values[0]["eval_share"] == values[1]["eval_share"]


def test_nothing_warns_and_nothing_is_cached(tmp_path, caplog):
    rows, collator, metric = tiny.rows(8), tiny.PaddingCollator(), Seen()
    trainer, _ = evaluated(PlusTrainer, tmp_path, tiny.bert(), rows, collator, metric, eval_cache=True)
    trainer.evaluate()
    said = [record.message for record in caplog.records]
    assert not any("no effect" in message for message in said)
    assert sum("given batches" in message for message in said) == 1
    assert len(metric.given) == 2


@pytest.mark.slow
@pytest.mark.distributed
def test_what_two_ranks_run_together_is_one_batch(tmp_path):
    done = torchrun(ROOT / "tests/support/batches_two_ranks.py", tmp_path / "two")
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    found = json.loads(line[len("FOUND ") :])
    assert (found["rows"], found["alike"]) == (9, True)
    alone = Seen()
    options = {"per_device_eval_batch_size": 4}
    evaluated(PlusTrainer, tmp_path, tiny.bert(), tiny.rows(9), tiny.PaddingCollator(), alone, **options)
    same(found["batches"], list(zip(*alone.given[0], strict=True)))
