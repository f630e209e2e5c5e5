"""Strata that a race takes from labels, of every kind of evaluation set, without reading more than it needs."""

import numpy as np
import pytest
from datasets import Dataset

from hf_trainplus import load_metric
from hf_trainplus.training.racing.readings import label_codes
from tests.support import tiny
from tests.training.test_race import evaluations, finished, make


def table(labels, name="labels"):
    return Dataset.from_dict({name: list(labels), "other": list(range(len(labels)))})


@pytest.mark.parametrize(
    ("labels", "groups"),
    [
        ([0, 1] * 50, 2),
        (["yes", "no", "maybe", "no"] * 25, 3),
        ([True, False, None, True] * 25, 3),
        ([0.0, 1.0, 2.0, 2.0] * 25, 3),
    ],
)
def test_classes_of_every_kind_are_strata(labels, groups):
    codes = label_codes(table(labels))
    assert codes.dtype == np.int64
    assert len(np.unique(codes)) == groups


@pytest.mark.parametrize(
    "labels",
    [
        [[1, 2, 3], [4], []] * 40,
        [[0.0, 1.0], [1.0, 1.0]] * 60,
        list(range(120)),
        [{"a": 1}] * 120,
    ],
    ids=["targets of a language model", "several labels", "ids", "records"],
)
def test_what_is_no_class_makes_no_strata(labels):
    assert label_codes(table(labels)) is None


def test_the_column_that_was_named_is_read_and_must_be_there():
    data = table(["a", "b"] * 50, "kind").add_column("labels", [0] * 50 + [1] * 50)
    assert label_codes(data, "kind").tolist() == [0, 1] * 50
    assert label_codes(data).tolist() == [0] * 50 + [1] * 50
    with pytest.raises(ValueError, match="no column 'topic'"):
        label_codes(data, "topic")


def test_rows_that_are_made_one_by_one_are_not_read_for_strata():
    class Rows:
        def __len__(self):
            return 100

        def __getitem__(self, position):
            raise AssertionError("a row was read")

    assert label_codes(Rows()) is None


@pytest.mark.parametrize("metric", ["loss", "perplexity", "token_accuracy"])
def test_language_models_with_targets_of_unequal_length_are_raced(metric, tmp_path):
    runs = []
    for mode in ("full", "race"):
        trainer = make(tmp_path / mode, mode, metric=metric, max_steps=5, model=tiny.llama())
        trainer.train_dataset, trainer.eval_dataset = (
            Dataset.from_list(tiny.causal_rows(rows, seed=rows)) for rows in (64, 300)
        )
        runs.append(finished(trainer))
    full, race = runs
    assert race.state.best_global_step == full.state.best_global_step
    assert race.state.best_metric == pytest.approx(full.state.best_metric, rel=1e-6)
    assert min(entry["eval_examples"] for entry in evaluations(race)) < 300


def test_a_correlation_that_is_not_defined_at_first_is_raced(tmp_path):
    runs = []
    for mode in ("full", "race"):
        model = tiny.bert(num_labels=1)
        trainer = make(tmp_path / mode, mode, metric_for_best_model="pearsonr", max_steps=20, model=model)
        trainer.compute_metrics = load_metric("pearsonr")
        for name in ("train_dataset", "eval_dataset"):
            rows = getattr(trainer, name)
            setattr(trainer, name, [dict(row, labels=row["labels"] + k / 1000) for k, row in enumerate(rows)])
        runs.append(finished(trainer))
    full, race = runs
    assert race.state.best_global_step == full.state.best_global_step
    assert race.state.best_metric == pytest.approx(full.state.best_metric, rel=1e-6)


def test_a_best_that_was_found_without_a_race_still_counts(tmp_path, caplog):
    options = {"save_strategy": "steps", "save_steps": 1}
    full = finished(make(tmp_path, "full", max_steps=10, **options))
    assert full.state.best_global_step < 10
    race = make(tmp_path, "race", max_steps=14, learning_rate=0.3, **options)
    race.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    assert "found without a race" in caplog.text
    assert race.state.best_global_step == full.state.best_global_step
    assert race.state.best_metric == full.state.best_metric
