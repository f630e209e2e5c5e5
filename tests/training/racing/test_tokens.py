"""The accuracy of tokens is raced by its sums, that of rows by its scores."""

import numpy as np
import pytest
import torch
from transformers import BertForTokenClassification

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from hf_trainplus.decisions.race import ScoreMetric, StatisticMetric
from tests.support import tiny
from tests.training.test_race import SMALL, finished, make


def tagged(n, seed=0):
    generator = np.random.default_rng(seed)
    rows = tiny.rows(n, low=3, high=14, seed=seed)
    for row in rows:
        ids = np.asarray(row["input_ids"])
        row["labels"] = ((ids > 20) != (generator.random(len(ids)) < 0.2)).astype(int).tolist()
    return rows


def padded(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    return {
        key: torch.tensor([[*row[key], *[value] * (longest - len(row[key]))] for row in rows])
        for key, value in fill.items()
    }


def tagger(folder, mode):
    options = {"max_steps": 12, "learning_rate": 1e-2, "eval_strategy": "steps", "eval_steps": 1}
    options |= {"load_best_model_at_end": True, "metric_for_best_model": "accuracy", "eval_mode": mode}
    torch.manual_seed(0)
    trainer = PlusTrainer(
        BertForTokenClassification(tiny.bert().config),
        PlusTrainingArguments(**tiny.quiet(folder, **options, per_device_eval_batch_size=50)),
        train_dataset=tagged(32, 1),
        eval_dataset=tagged(500),
        data_collator=padded,
        compute_metrics=load_metric("accuracy"),
    )
    trainer._scheduled.race.limits = SMALL
    return finished(trainer)


def test_an_accuracy_of_tokens_keeps_stocks_best(tmp_path):
    full, race = tagger(tmp_path / "full", "full"), tagger(tmp_path / "race", "race")
    assert race.state.best_global_step == full.state.best_global_step
    assert race.state.best_metric == pytest.approx(full.state.best_metric)
    session = race._scheduled.race.session
    assert isinstance(session.race.metric, StatisticMetric)
    assert session.race.state.pairs < 12 * 500


def test_an_accuracy_of_rows_keeps_its_bounds(tmp_path):
    trainer = finished(make(tmp_path, "race", metric="accuracy", max_steps=2))
    assert isinstance(trainer._scheduled.race.session.race.metric, ScoreMetric)
