"""Metrics of real-valued predictions: MSE, MAE, Pearson, and the two of ranks, AUC and Spearman; and perplexity."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics as sk

from hf_trainplus.evaluation.metrics import AdditiveMetric, load_metric


def fed(metric, predictions, references, size=5):
    for start in range(0, len(predictions), size):
        metric.update(predictions[start : start + size], references[start : start + size])
    return metric.compute()[metric.primary]


def test_pearson_keeps_its_digits_under_an_offset():
    """Mean 1e6 and spread 1: raw moments lose 12 of 16 digits, the state does not."""
    rng = np.random.default_rng(0)
    true = rng.normal(size=500) + 1e6
    predicted = true + rng.normal(size=500)
    expected = stats.pearsonr(true - 1e6, predicted - 1e6)[0]
    metric = load_metric("pearson")
    assert fed(metric, predicted, true, size=7) == pytest.approx(expected, abs=1e-10)
    parts = [metric.empty_copy() for _ in range(4)]
    for part, rows in zip(parts, np.array_split(np.arange(500), 4), strict=True):
        fed(part, predicted[rows], true[rows], size=50)
    metric.merge_states([part.state_arrays() for part in parts])
    assert metric.compute()["pearsonr"] == pytest.approx(expected, abs=1e-10)
    totals = metric.example_statistics(predicted, true).sum(0)
    assert abs(float(metric.primary_from_totals(totals)) - expected) > 1e-9  # so the docstring is true


def test_pearson_from_statistics_equals_update_on_plain_data():
    rng = np.random.default_rng(1)
    predicted, true = rng.normal(size=(2, 80))
    metric, other = load_metric("pearson"), load_metric("pearson")
    metric.update(predicted, true)
    for rows in np.array_split(np.arange(80), 3):
        other.add(other.example_statistics(predicted[rows], true[rows]))
    assert other.compute() == pytest.approx(metric.compute(), abs=1e-12)


@pytest.mark.parametrize("name", ["pearson", "spearman"])
@pytest.mark.parametrize("predicted", [[2.0, 2.0, 2.0], [1.0, np.nan, 2.0], [1.0]])
def test_a_correlation_that_is_not_defined_is_nan(name, predicted):
    metric = load_metric(name)
    metric.update(predicted, [1.0, 2.0, 4.0][: len(predicted)])
    assert np.isnan(metric.compute()[metric.primary])


@pytest.mark.parametrize("name", ["mse", "mae"])
def test_errors_take_heads_of_one_column_and_tensors_of_any_precision(name):
    true = torch.tensor([1.0, -2.0, 0.5])
    predicted = torch.tensor([[1.5], [-1.0], [0.5]])
    expected = {"mse": (0.25 + 1) / 3, "mae": 1.5 / 3}[name]
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        metric = load_metric(name)
        metric.update(metric.reduce(predicted.to(dtype)), true)
        assert metric.compute()[name] == pytest.approx(expected)
    np.testing.assert_allclose(metric.example_scores(predicted, true).mean(), expected)
    assert metric.greater_is_better is False


def test_sums_stay_exact_where_float32_ones_do_not():
    errors = np.full(3_000_000, 0.1, dtype=np.float32)
    metric = load_metric("mae")
    fed(metric, errors, np.zeros_like(errors), size=500_000)
    assert metric.compute()["mae"] == pytest.approx(float(np.float32(0.1)), rel=1e-12)


def test_a_nan_prediction_shows():
    metric = load_metric("mse")
    metric.update([1.0, np.nan], [1.0, 1.0])
    assert np.isnan(metric.compute()["mse"])


def test_root_of_several_outputs_is_refused():
    metric = load_metric("mse", squared=False)
    assert metric.per_example is False
    assert metric.example_scores([1.0], [2.0]) is None
    with pytest.raises(ValueError, match=r"rows of shape \(2,\); the root of several outputs is no function of sums"):
        metric.update(np.zeros((3, 2)), np.ones((3, 2)))


@pytest.mark.parametrize(
    ("name", "predictions", "references", "message"),
    [
        ("mae", [1.0, 2.0], [1.0], r"shape \(2,\) and references of shape \(1,\); give one number for each target"),
        ("pearson", np.ones((2, 2)), np.ones((2, 2)), "give one number a row"),
        ("mse", ["a"], [1.0], "give real numbers, one a row"),
        ("auc", [0.5, 0.6], [1], r"shape \(2,\) and references of shape \(1,\); give one score for each target"),
        ("spearman", 1.0, 1.0, r"shape \(\) and references of shape \(\)"),
    ],
)
def test_wrong_shapes_are_named(name, predictions, references, message):
    with pytest.raises(ValueError, match=message):
        load_metric(name).update(predictions, references)


def test_spearman_refuses_rows_of_several_outputs():
    metric = load_metric("spearman")
    metric.update(np.ones((3, 2)), np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"rows of shape \(2,\); give one number a row"):
        metric.compute()


@pytest.mark.parametrize("name", ["auc", "spearman"])
def test_rank_metrics_have_no_additive_statistics(name):
    metric = load_metric(name)
    assert metric.statistics is None
    assert not isinstance(metric, AdditiveMetric)
    assert metric.per_example is False
    assert metric.example_scores([0.1], [1]) is None
    assert np.isnan(metric.compute()[metric.primary])
    metric.update([0.2, 0.9], [0, 1])
    assert metric.compute()[metric.primary] == pytest.approx(1.0, abs=1e-15)
    metric.reset()
    assert len(metric.state_arrays()["scores"]) == 0


def test_auc_keeps_one_score_a_row_in_its_own_type():
    metric = load_metric("auc")
    for _ in range(10):
        metric.update(torch.rand(100), torch.randint(0, 2, (100,)))
    arrays = metric.state_arrays()
    assert arrays["scores"].shape == (1000,)
    assert arrays["scores"].nbytes == 4000


def test_auc_of_two_logits_ranks_as_the_probability_does():
    rng = np.random.default_rng(2)
    logits, true = rng.normal(size=(200, 2)).astype(np.float32), rng.integers(0, 2, 200)
    probability = torch.tensor(logits, dtype=torch.float64).softmax(-1)[:, 1].numpy()
    metric = load_metric("auc")
    metric.update(metric.reduce(torch.tensor(logits)), true)
    assert metric.compute()["roc_auc"] == pytest.approx(sk.roc_auc_score(true, probability), abs=1e-12)


def test_auc_of_half_precision_logits_makes_no_ties_of_its_own():
    logits = torch.tensor([[-100.0, 0.0], [-100.0, 0.125]], dtype=torch.bfloat16)  # equal differences in bfloat16
    assert (logits[:, 1] - logits[:, 0]).unique().numel() == 1
    metric = load_metric("auc")
    metric.update(metric.reduce(logits), [0, 1])
    assert metric.compute()["roc_auc"] == 1.0


def test_auc_of_several_classes_reduces_to_probabilities():
    rng = np.random.default_rng(3)
    logits, true = 90 * rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    metric = load_metric("auc", multi_class="ovr")
    for rows in np.array_split(np.arange(60), 4):
        metric.update(metric.reduce(torch.tensor(logits[rows])), true[rows])
    expected = sk.roc_auc_score(true, torch.tensor(logits).softmax(-1).numpy(), multi_class="ovr")
    assert metric.compute()["roc_auc"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "scores", "targets"),
    [
        ({}, [0.1, 0.2], [1, 1]),
        ({}, [0.1, np.nan], [0, 1]),
        ({"multi_class": "ovr"}, [[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]], [0, 2]),
    ],
)
def test_an_undefined_auc_is_nan_and_stops_nothing(options, scores, targets):
    metric = load_metric("auc", **options)
    metric.update(scores, targets)
    assert np.isnan(metric.compute()["roc_auc"])


def test_perplexity_is_over_tokens_and_skips_rows_without_targets():
    metric = load_metric("perplexity")
    metric.update([20.0, 3.0, np.nan], [10, 1, 0])
    assert metric.compute()["perplexity"] == pytest.approx(np.exp(23 / 11))
    assert metric.compute()["mean_perplexity"] == pytest.approx((np.exp(2) + np.exp(3)) / 2)
    assert metric.form == "losses"
    assert np.isnan(load_metric("perplexity").compute()["perplexity"])


def test_perplexity_that_overflows_is_infinite():
    metric = load_metric("perplexity")
    metric.update([1e6], [1])
    assert metric.compute()["perplexity"] == np.inf
