"""Metrics that would be silently wrong say so, and nothing seen is no value."""

import numpy as np
import pytest
from sklearn import metrics as sk

from hf_trainplus.evaluation.metrics import load_metric

LABELS, FOUND = np.array([[1, 0], [0, 1]]), np.array([[1, 0], [1, 1]])


def test_auc_of_label_vectors_needs_to_be_told():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(50, 4)), rng.integers(0, 2, (50, 4))
    told, untold = load_metric("auc", multilabel=True), load_metric("auc")
    told.update(told.reduce(logits), labels)
    assert told.compute()["roc_auc"] == pytest.approx(sk.roc_auc_score(labels, logits))
    with pytest.raises(ValueError, match=r"shape \(50, 4\): rows of 0/1 labels; use .*multilabel=True"):
        untold.update(untold.reduce(logits), labels)
    with pytest.raises(ValueError, match="multilabel=True"):
        untold.row_payload(untold.reduce(logits), labels)


@pytest.mark.parametrize("name", ["precision", "recall", "f1"])
@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
def test_counts_of_label_vectors_need_to_be_told(name, average):
    score = {"precision": sk.precision_score, "recall": sk.recall_score, "f1": sk.f1_score}[name]
    told = load_metric(name, average=average, multilabel=True)
    told.update(FOUND, LABELS)
    assert told.compute()[name] == pytest.approx(score(LABELS, FOUND, average=average))
    for options in ({}, {"num_labels": 2}):
        with pytest.raises(ValueError, match="hold 0 and 1 alone"):
            load_metric(name, average=average, **options).update(FOUND, LABELS)


@pytest.mark.parametrize(
    ("labels", "options"),
    [([[1, 0, -100]], {}), ([[1, 0, 2]], {}), ([[1, 0, 1]], {"num_labels": 2}), ([1, 0, 1], {}), ([[1], [0]], {})],
)
def test_tokens_pass(labels, options):
    metric = load_metric("f1", average="micro", **options)
    metric.update(labels, labels)
    assert metric.compute() == {"f1": 1.0}


@pytest.mark.parametrize("average", ["binary", "micro", "macro", "weighted"])
@pytest.mark.parametrize("name", ["precision", "recall", "f1", "accuracy"])
def test_a_batch_of_no_rows_is_no_value(name, average):
    metric = load_metric(name, **({} if name == "accuracy" else {"average": average, "num_labels": 2}))
    metric.update([], [])
    assert np.isnan(metric.compute()[name])
    metric.update([1, 1], [1, 1])
    assert metric.compute()[name] == 1
