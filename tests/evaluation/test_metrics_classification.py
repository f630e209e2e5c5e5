"""Accuracy, precision, recall, F1 and MCC against scikit-learn on random labels, and what they refuse."""

import warnings

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from hf_trainplus.evaluation.metrics import load_metric

SCORES = {"precision": sk.precision_score, "recall": sk.recall_score, "f1": sk.f1_score}


def random_labels(rng):
    classes, rows = rng.integers(2, 6), rng.integers(2, 30)
    return rng.integers(0, classes, rows), rng.integers(0, classes, rows)


def split_and_merged(metric, predicted, true):
    cut = len(true) // 2
    other = metric.empty_copy()
    metric.update(predicted[:cut], true[:cut])
    other.update(predicted[cut:], true[cut:])
    metric.merge(other)
    return metric.compute()[metric.primary]


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
@pytest.mark.parametrize("num_labels", [None, 7])
def test_averages_equal_scikit_learn(name, average, num_labels):
    rng = np.random.default_rng(1)
    for _ in range(12):
        predicted, true = random_labels(rng)
        for zero_division in (0.0, 1.0):
            for labels in (None, [0, int(true[0])]):
                metric = load_metric(
                    name, average=average, num_labels=num_labels, zero_division=zero_division, labels=labels
                )
                expected = SCORES[name](true, predicted, average=average, zero_division=zero_division, labels=labels)
                assert split_and_merged(metric, predicted, true) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "samples"])
def test_multilabel_equals_scikit_learn(name, average):
    rng = np.random.default_rng(2)
    for _ in range(20):
        predicted, true = rng.integers(0, 2, (2, rng.integers(2, 9), 4))
        metric = load_metric(name, average=average, multilabel=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = SCORES[name](true, predicted, average=average)
        assert split_and_merged(metric, predicted, true) == pytest.approx(expected, abs=1e-12)
        if average == "samples":
            assert metric.example_scores(predicted, true).mean() == pytest.approx(expected)


@pytest.mark.parametrize("num_labels", [None, 6])
def test_matthews_equals_scikit_learn(num_labels):
    rng = np.random.default_rng(3)
    for _ in range(60):
        predicted, true = random_labels(rng)
        expected = sk.matthews_corrcoef(true, predicted)
        metric = load_metric("mcc", num_labels=num_labels)
        assert split_and_merged(metric, predicted, true) == pytest.approx(expected, abs=1e-12)


def test_masked_tokens_are_dropped():
    rng = np.random.default_rng(4)
    true = rng.integers(0, 4, (9, 11))
    predicted = rng.integers(0, 4, (9, 11))
    true[rng.random(true.shape) < 0.4] = -100
    true[2] = -100  # a row without a target
    keep = true != -100
    flat = (predicted[keep], true[keep])
    for name, options, expected in [
        ("accuracy", {}, sk.accuracy_score(flat[1], flat[0])),
        ("token_accuracy", {}, sk.accuracy_score(flat[1], flat[0])),
        ("f1", {"average": "macro"}, sk.f1_score(flat[1], flat[0], average="macro")),
        ("f1", {"average": "micro"}, sk.f1_score(flat[1], flat[0], average="micro")),
        ("mcc", {}, sk.matthews_corrcoef(flat[1], flat[0])),
    ]:
        metric = load_metric(name, **options)
        for start in range(0, 9, 4):
            metric.update(torch.tensor(predicted[start : start + 4]), torch.tensor(true[start : start + 4]))
        assert metric.compute()[metric.primary] == pytest.approx(expected, abs=1e-12), name
        assert metric.example_scores(predicted, true) is None


def test_token_accuracy_shifts_for_causal_models():
    rng = np.random.default_rng(5)
    logits, labels = rng.normal(size=(4, 6, 9)), rng.integers(0, 9, (4, 6))
    labels[:, :2] = -100
    ids = logits.argmax(-1)
    expected = np.mean([ids[i, t] == labels[i, t + 1] for i in range(4) for t in range(5) if labels[i, t + 1] != -100])
    metric = load_metric("token_accuracy", shift=True)
    metric.update(ids, labels)
    assert metric.compute() == {"token_accuracy": pytest.approx(expected)}
    assert metric.example_statistics(ids, labels)[:, 1].tolist() == [4.0] * 4


def test_accuracy_of_rows_is_the_mean_of_its_scores():
    metric = load_metric("accuracy")
    assert metric.per_example
    scores = metric.example_scores(np.array([1, 0, 2]), np.array([1, 1, -100]))
    np.testing.assert_array_equal(scores, [1.0, 0.0, np.nan])
    assert load_metric("token_accuracy").per_example is False


@pytest.mark.parametrize("name", ["accuracy", "precision", "recall", "f1", "mcc", "token_accuracy"])
def test_nothing_seen_is_nan_and_an_empty_batch_changes_nothing(name):
    metric = load_metric(name)
    assert np.isnan(metric.compute()[metric.primary])
    metric.update(np.empty(0, int), np.empty(0, int))
    metric.update([1, 0], [1, 1])
    value = metric.compute()
    metric.update([], [])
    assert metric.compute() == value
    metric.reset()
    assert np.isnan(metric.compute()[metric.primary])


def test_f1_is_not_a_mean_over_batches():
    predicted, true = [1, 1, 0, 0], [1, 0, 1, 1]
    metric = load_metric("f1")
    metric.update(predicted[:3], true[:3])
    metric.update(predicted[3:], true[3:])
    assert metric.compute()["f1"] == pytest.approx(sk.f1_score(true, predicted))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("f1", {"average": "best"}, r"average='best'; allowed are binary, micro, macro, weighted, samples"),
        ("f1", {"average": None}, "average=None; allowed are"),
        ("f1", {"average": "samples"}, "multilabel=False; rows of 0/1 labels take multilabel=True"),
        ("f1", {"multilabel": True}, "average='binary' with multilabel=True"),
        ("f1", {"labels": [1, 2]}, "labels with average='binary'; name the class by pos_label"),
        ("f1", {"average": "macro", "labels": []}, r"labels=\[\]; give at least one"),
        ("recall", {"num_labels": 0}, "num_labels=0; give a number of 1 or more"),
        ("precision", {"zero_division": 0.5}, "zero_division=0.5; allowed are 0 and 1"),
    ],
)
def test_options_are_checked_when_the_metric_is_made(name, options, message):
    with pytest.raises(ValueError, match=message):
        load_metric(name, **options)


def test_binary_refuses_a_third_class_also_in_a_later_batch():
    metric = load_metric("f1")
    metric.update([0, 1], [1, 0])
    with pytest.raises(ValueError, match=r"the classes \[0, 1, 2\] occur; set pos_label, or average"):
        metric.update([2, 1], [1, 1])
    other = load_metric("f1", pos_label=3)
    other.update([0, 0], [0, 0])
    with pytest.raises(ValueError, match=r"pos_label=3, and the classes \[0, 1\] occur"):
        other.update([1, 0], [0, 0])


def test_binary_refuses_a_model_of_three_classes_before_the_first_batch():
    with pytest.raises(ValueError, match=r'the model 3 classes; choose one: load_metric\("f1", average="macro"\)'):
        load_metric("f1").bind(num_labels=3)


def test_bind_fills_in_what_is_open_and_nothing_else():
    metric = load_metric("f1", average="macro")
    assert metric.statistics is None
    with pytest.raises(ValueError, match=r'need the number of classes: load_metric\("f1", ..., num_labels=3\)'):
        metric.example_statistics([0], [1])
    metric.bind(num_labels=4)
    assert metric.statistics == 12
    metric.bind(num_labels=9)
    assert metric.num_labels == 4
    accuracy = load_metric("accuracy")
    accuracy.bind(num_labels=4)
    assert not hasattr(accuracy, "num_labels")


@pytest.mark.parametrize("name", ["mcc", "f1"])
def test_a_class_outside_the_known_ones_is_named(name):
    metric = load_metric(name, num_labels=3, **({"average": "macro"} if name == "f1" else {}))
    with pytest.raises(ValueError, match=r"class id 3; with num_labels=3 allowed are 0 to 2 and -100"):
        metric.update([0, 3], [0, 1])


@pytest.mark.parametrize(
    ("predictions", "references", "message"),
    [
        (np.zeros((4, 3)), [0, 1, 2, 0], r"shape \(4, 3\) and references of shape \(4,\); give one class id for each"),
        ([0.5, 1.0], [0, 1], r"not whole numbers, e.g. 0.5; give class ids, e.g. logits.argmax"),
        (["yes"], ["no"], "class ids as whole numbers in one dimension or more"),
        (3, 3, r"of type int64 and shape \(\)"),
    ],
)
def test_what_are_no_class_ids_is_refused(predictions, references, message):
    with pytest.raises(ValueError, match=message):
        load_metric("accuracy").update(predictions, references)


def test_merging_asks_for_the_same_kind_and_options():
    with pytest.raises(TypeError, match="F1 cannot merge Recall"):
        load_metric("f1").merge(load_metric("recall"))
    with pytest.raises(ValueError, match="f1 with average='macro' cannot merge average='micro'"):
        load_metric("f1", average="macro").merge(load_metric("f1", average="micro"))
