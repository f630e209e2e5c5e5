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


def test_slices_of_missing_values_and_of_names_that_keys_cannot_hold(tmp_path):
    trainer = make(tmp_path, eval_group_columns=["score", "topic"])
    names = ["a b", "a_b", "日本", "中国"]
    data = [{**row, "topic": names[k % 4], "score": [float("nan"), 1.0][k % 2]} for k, row in enumerate(rows())]
    metrics = trainer.evaluate(Dataset.from_list(data))
    halves = [metrics[f"eval_score_{name}_accuracy"] for name in ("None", "1.0")]
    assert np.mean(halves) == pytest.approx(metrics["eval_accuracy"])
    ours = [key for key in metrics if key.startswith("eval_topic_") and key.endswith("_accuracy")]
    assert np.mean([metrics[key] for key in ours]) == pytest.approx(metrics["eval_accuracy"])
    assert len(ours) == 4
    assert "eval_topic_a_b_accuracy" in ours


def test_a_row_without_a_cluster_belongs_with_no_other(tmp_path):
    trainer = make(tmp_path, eval_cluster_column="document")
    missing = [{**row, "document": "d" if k < 4 else None} for k, row in enumerate(rows())]
    alone = [{**row, "document": "d" if k < 4 else f"e{k}"} for k, row in enumerate(rows())]
    found, wanted = (trainer.evaluate(Dataset.from_list(data)) for data in (missing, alone))
    for key in ("eval_loss_ci_low", "eval_loss_ci_high"):
        assert found[key] == pytest.approx(wanted[key])


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
