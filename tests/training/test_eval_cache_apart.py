"""Evaluations that differ in anything never share an entry, and what cannot be told apart is not kept."""

import os
import re

import pytest
import torch
from datasets import Dataset
from torch import nn
from transformers import DataCollatorForLanguageModeling

from hf_trainplus import PlusTrainer, load_metric
from tests.evaluation.fingerprints.test_kinds import tokenizer
from tests.support import tiny
from tests.support.cached_runs import Logs, evaluated, files, function, make, with_config


@pytest.fixture
def logs(monkeypatch):
    return Logs(monkeypatch)


# ---- what must never share an entry ----
def scores(share):
    return lambda prediction: {"score": share}


def changed_weights():
    model = tiny.bert()
    model.classifier.bias.data[0] += 1e-6
    return model


class Halved(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) / 2


def halved():
    model = tiny.bert()
    model.classifier = Halved(model.classifier)
    return model


def relabelled(kind=list):
    rows = tiny.rows(11)
    rows[10] = {**rows[10], "labels": 1 - rows[10]["labels"]}
    return kind(rows)


VARIANTS = {
    "other weights": {"model": lambda: tiny.bert(seed=1)},
    "a weight written through .data": {"model": changed_weights},
    "another activation": {"model": lambda: with_config(hidden_act="relu")},
    "another head": {"model": halved},
    "half precision": {"model": lambda: tiny.bert().to(torch.bfloat16)},
    "a label": {"rows": relabelled},
    "fewer rows": {"rows": lambda: tiny.rows(10)},
    "another order": {"rows": lambda: tiny.rows(11)[::-1]},
    "another kind of dataset": {"rows": lambda: Dataset.from_list(tiny.rows(11))},
    "another captured value": {"metric": lambda: scores(0.6)},
    "another function": {"metric": lambda: lambda prediction: {"score": 0.5 + 0}},
    "a metric object": {"metric": lambda: load_metric("accuracy")},
    "no metric": {"metric": lambda: None},
    "another collator": {"collator": lambda: tiny.PaddingCollator("left")},
    "label smoothing": {"label_smoothing_factor": lambda: 0.1},
    "evaluation precision": {"eval_precision": lambda: "bf16"},
    "training precision": {"bf16": lambda: True},
    "predictions given to the metric": {"eval_predictions": lambda: "logits"},
    "columns kept": {"remove_unused_columns": lambda: False},
    "loss only": {"prediction_loss_only": lambda: True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_evaluations_that_differ_in_one_thing_never_share_an_entry(tmp_path, variant):
    base = {"model": tiny.bert, "metric": lambda: scores(0.5)}
    first, _ = evaluated(make(tmp_path, **{name: value() for name, value in base.items()}))
    changed = {name: value() for name, value in (base | VARIANTS[variant]).items()}
    _, ran = evaluated(make(tmp_path, **changed))
    assert ran
    again, ran = evaluated(make(tmp_path, **{name: value() for name, value in base.items()}))
    assert (again, ran) == (first, False)


def test_two_revisions_of_a_table_never_share_an_entry(tmp_path):
    _, ran = evaluated(make(tmp_path, rows=Dataset.from_list(tiny.rows(11))))
    assert ran
    _, ran = evaluated(make(tmp_path, rows=relabelled(Dataset.from_list)))
    assert ran
    _, ran = evaluated(make(tmp_path, rows=Dataset.from_list(tiny.rows(11))))
    assert not ran


def test_labels_changed_in_place_are_seen(tmp_path):
    trainer = make(tmp_path)
    evaluated(trainer)
    trainer.eval_dataset[0]["labels"] = 1 - trainer.eval_dataset[0]["labels"]
    _, ran = evaluated(trainer)
    assert ran


def test_tokenizers_never_share_an_entry(tmp_path):
    for side, expected in (("right", True), ("left", True), ("right", False)):
        trainer = make(tmp_path)
        trainer.processing_class = tokenizer(padding_side=side)
        assert evaluated(trainer)[1] is expected


def test_what_prepares_the_metrics_input_counts(tmp_path):
    for factor, expected in ((1, True), (2, True), (1, False)):
        trainer = make(tmp_path, metric=function)
        trainer.preprocess_logits_for_metrics = lambda logits, labels, factor=factor: logits * factor
        assert evaluated(trainer)[1] is expected


def test_the_threshold_that_a_function_reads_counts(tmp_path):
    source = "def metric(p):\n    return {'share': float((p.predictions > LIMIT).mean())}\n"
    found = []
    for limit in (0.0, 0.1):
        namespace = {"LIMIT": limit}
        exec(source, namespace)
        found.append(evaluated(make(tmp_path, metric=namespace["metric"])))
    assert [ran for _, ran in found] == [True, True]


# ---- what is not kept, and said once ----
def reads_a_file(prediction):
    with open(os.devnull) as file:
        return {"x": float(len(file.read()))}


class Computed(torch.utils.data.Dataset):
    def __init__(self, **attributes):
        self.rows = tiny.rows(5)
        vars(self).update(attributes)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, position):
        return self.rows[position]


class OwnLoss(PlusTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        return (2 * outputs.loss, outputs) if return_outputs else 2 * outputs.loss


class OwnLoader(PlusTrainer):
    def get_eval_dataloader(self, eval_dataset=None):
        return torch.utils.data.DataLoader(self.eval_dataset, batch_size=2, collate_fn=self.data_collator)


def masking():
    return DataCollatorForLanguageModeling(tokenizer([str(k) for k in range(40)], mask_token="1"))


REFUSED = {
    "a function that reads a file": (
        {"metric": reads_a_file},
        "the metric function cannot be .* in reads_a_file, it uses open",
    ),
    "a computed dataset": ({"rows": Computed()}, "the evaluation set cannot be .* a Computed, computes its rows"),
    "a stream": (
        {"rows": Dataset.from_list(tiny.rows(5)).to_iterable_dataset()},
        "an IterableDataset, computes|a IterableDataset",
    ),
    "a loss of the trainer's own": ({"trainer": OwnLoss}, "OwnLoss has a compute_loss of its own"),
    "a loader of the trainer's own": ({"trainer": OwnLoader}, "a data loader that is not PlusTrainer's own"),
    "random masks": (
        {"collator": masking(), "model": tiny.bert()},
        "the collator or tokenizer cannot be .* masks at random",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_told_apart_is_evaluated_each_time_and_said_once(tmp_path, case, logs):
    options, reason = REFUSED[case]
    trainer = make(tmp_path, **options)
    try:
        runs = [evaluated(trainer)[1] for _ in range(2)]
    except (KeyError, ValueError):  # masked rows are no rows of a classifier; what is said comes before that
        runs = [True, True]
    assert runs == [True, True]
    assert files(tmp_path) == []
    assert len(logs.about_the_cache) == 1
    assert logs.about_the_cache[0].startswith("eval_cache keeps nothing of this evaluation: ")
    assert re.search(reason, logs.about_the_cache[0])


def test_a_dataset_that_says_what_it_is_is_kept_under_that(tmp_path):
    for version, expected in (("1", True), ("2", True), ("1", False)):
        _, ran = evaluated(make(tmp_path, rows=Computed(fingerprint=version)))
        assert ran is expected


def test_losses_that_are_not_those_of_rows_are_not_kept(tmp_path, logs):
    def doubled(outputs, labels, num_items_in_batch=None):
        return 2 * nn.functional.cross_entropy(outputs["logits"], labels)

    trainer = make(tmp_path)
    trainer.compute_loss_func = doubled
    assert [evaluated(trainer)[1] for _ in range(2)] == [True, True]
    assert files(tmp_path) == []
    assert "the losses of single rows are not known" in logs.about_the_cache[0]


def test_an_object_that_fails_when_it_is_looked_at_stops_nothing(tmp_path, logs):
    class Odd:
        __slots__ = ()

        def __call__(self, prediction):
            return {"x": 1.0}

        def __reduce_ex__(self, protocol):
            raise RuntimeError("leave me alone")

    metrics, ran = evaluated(make(tmp_path, metric=Odd()))
    assert (metrics["eval_x"], ran) == (1.0, True)
    assert "leave me alone" in logs.about_the_cache[0]


def test_predictions_are_never_taken_from_the_cache(tmp_path):
    trainer = make(tmp_path)
    trainer.evaluate()
    before = trainer.counter.batches
    assert trainer.predict(tiny.rows(11)).predictions.shape == (11, 2)
    assert trainer.counter.batches > before


def test_a_metric_that_fails_leaves_no_entry(tmp_path):
    def fails(prediction):
        raise ZeroDivisionError("no rows")

    with pytest.raises(ZeroDivisionError, match="no rows"):
        make(tmp_path, metric=fails).evaluate()
    assert files(tmp_path) == []
