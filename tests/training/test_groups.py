"""Slices, clusters, and a subset drawn by difficulty."""

import numpy as np
import pytest
from datasets import Dataset

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from tests.support import tiny


def rows(n=24):
    return [{**row, "topic": "ab"[k % 2], "document": k // 4} for k, row in enumerate(tiny.rows(n))]


def make(folder, **options):
    args = PlusTrainingArguments(**tiny.quiet(folder, **options))
    return PlusTrainer(
        tiny.bert(),
        args,
        train_dataset=tiny.rows(16),
        eval_dataset=Dataset.from_list(rows()),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=load_metric("accuracy"),
    )


def test_slices_add_up_to_the_whole(tmp_path):
    metrics = make(tmp_path, eval_group_columns="topic").evaluate()
    halves = [metrics[f"eval_topic_{name}_accuracy"] for name in "ab"]
    assert np.mean(halves) == pytest.approx(metrics["eval_accuracy"])
    losses = [metrics[f"eval_topic_{name}_loss"] for name in "ab"]
    assert np.mean(losses) == pytest.approx(metrics["eval_loss"])
    assert metrics["eval_topic_a_loss_ci_low"] < metrics["eval_topic_a_loss"]


def test_clusters_widen_intervals(tmp_path):
    plain = make(tmp_path).evaluate()
    clustered = make(tmp_path, eval_cluster_column="document").evaluate()
    assert clustered["eval_loss"] == pytest.approx(plain["eval_loss"])
    width = [found["eval_loss_ci_high"] - found["eval_loss_ci_low"] for found in (plain, clustered)]
    assert width[0] != width[1]


def test_an_unknown_column_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"'author' is not in the evaluation set.*'topic'"):
        make(tmp_path, eval_group_columns="author").evaluate()


def test_difficulty_takes_one_full_evaluation_and_then_the_same_rows(tmp_path):
    options = {
        "eval_mode": "subset",
        "eval_subset_size": 10,
        "eval_subset_strategy": "difficulty",
        "max_steps": 4,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "save_strategy": "steps",
        "save_steps": 2,
    }
    trainer = make(tmp_path, **options)
    trainer.train()

    def examples(trainer):
        return [entry["eval_examples"] for entry in trainer.state.log_history if "eval_loss" in entry]

    assert examples(trainer) == [24, 10, 10, 10]
    drawn = trainer._scheduled._subsets["eval"].indices.tolist()
    resumed = make(tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert examples(resumed) == [24, 10, 10, 10]
    assert resumed._scheduled._subsets["eval"].indices.tolist() == drawn
