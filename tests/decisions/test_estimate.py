import math

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.proportion import proportion_confint

from hf_trainplus import ExampleResults
from hf_trainplus.decisions.estimate import (
    SampleDesign,
    design_of_results,
    estimate,
    estimate_slices,
    loss_interval,
    mean_interval,
    wilson_interval,
)
from hf_trainplus.decisions.subset import Subset


def results(n=400, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 30, n)
    return ExampleResults(
        np.arange(n),
        counts * rng.gamma(2.0, 0.4, n),
        counts,
        scores={"accuracy": rng.random(n) < 0.8},
        groups={"document": rng.integers(0, 40, n)},
    )


@pytest.mark.parametrize(("successes", "n"), [(0, 20), (20, 20), (10, 20), (3, 7), (1, 1), (990, 1000)])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_wilson_agrees_with_statsmodels(successes, n, confidence):
    ours = wilson_interval(successes, n, confidence=confidence)
    low, high = proportion_confint(successes, n, alpha=1 - confidence, method="wilson")
    assert (ours.ci_low, ours.ci_high) == (pytest.approx(low, abs=1e-12), pytest.approx(high, abs=1e-12))
    assert ours.exact
    assert ours.method == "wilson"


def test_twenty_of_twenty_is_not_certain():
    full = wilson_interval(20, 20)
    assert full.value == 1.0
    assert full.ci_low < 0.85
    assert full.standard_error == 0.0


def test_loss_of_the_full_set_is_the_token_exact_loss():
    table = results()
    full = estimate(table)
    assert full.value == pytest.approx(table.loss)
    assert full.exact
    assert full.standard_error == 0.0
    assert full.population_standard_error > 0
    assert full.ci_low < full.value < full.ci_high
    assert (full.n, full.n_total) == (400, 400)


def test_perplexity_is_the_mapped_loss():
    table = results()
    loss, perplexity = estimate(table), estimate(table, "perplexity")
    assert perplexity.value == pytest.approx(math.exp(loss.value))
    assert perplexity.ci_high == pytest.approx(math.exp(loss.ci_high))
    assert perplexity.population_standard_error == pytest.approx(loss.population_standard_error * perplexity.value)


def test_perplexity_that_overflows_is_infinite():
    assert estimate(ExampleResults([0, 1], [1e6, 1e6], [1, 1]), "perplexity").value == math.inf


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nonfinite_values_show_and_have_no_interval(bad):
    table = ExampleResults([0, 1, 2], [1.0, bad, 2.0], [1, 1, 1], scores={"f": [0.5, bad, 0.1]})
    for metric in ("loss", "perplexity", "f"):
        value = estimate(table, metric)
        assert not value.finite
        assert value.value is not None
        assert value.ci_low is None
        assert value.ci_high is None
        assert value.standard_error is None


def test_masked_rows_do_not_count():
    assert loss_interval([3.0, math.nan], [3, 0]).value == 1.0


def test_no_target_is_none_not_zero():
    assert loss_interval([0.0], [0]).value is None
    assert mean_interval([]).value is None
    assert not mean_interval([]).finite


def test_sample_is_never_exact_and_its_fpc_shrinks_the_error():
    values = np.random.default_rng(0).random(50)
    wide, narrow = mean_interval(values, n_total=10**6), mean_interval(values, n_total=55)
    assert not wide.exact
    assert narrow.standard_error / wide.standard_error == pytest.approx(math.sqrt(5 / 55), rel=1e-4)
    assert narrow.population_standard_error == pytest.approx(wide.population_standard_error)


def test_subset_results_may_come_in_any_order():
    table = results()
    rows = np.array([3, 10, 200, 399])
    subset = Subset(rows, [100.0] * 4, [0] * 4)
    forward = estimate(table.take(rows), subset=subset)
    backward = estimate(table.take(rows[::-1]), subset=subset)
    assert forward == backward
    assert forward.n_total == 400


def test_results_of_other_rows_are_refused():
    table = results()
    subset = Subset([1, 2, 3], [1.0, 1.0, 1.0], [0, 0, 0])
    with pytest.raises(ValueError, match="1 of the subset's 3 rows are missing .first .3.., 1 rows were not drawn"):
        estimate(table.take(np.array([1, 2, 4])), subset=subset)


def test_wrong_use_is_named():
    table = results()
    with pytest.raises(ValueError, match="metric is 'bleu'; allowed are loss, perplexity, accuracy"):
        estimate(table, "bleu")
    with pytest.raises(ValueError, match="clusters is 'author'; the results' group columns are .'document'."):
        estimate(table, clusters="author")
    with pytest.raises(ValueError, match="n_total=10 and 400 rows"):
        estimate(table, n_total=10)
    with pytest.raises(ValueError, match="n_total and subset were both given"):
        estimate(table, n_total=500, subset=Subset([0], [1.0], [0]))
    with pytest.raises(ValueError, match="confidence is 95"):
        estimate(table, confidence=95)


def test_slices_of_the_full_set():
    table = results()
    found = estimate_slices(table, "accuracy", "document")
    assert list(found) == sorted(set(table.groups["document"].tolist()))
    for name, slice_ in found.items():
        rows = table.groups["document"] == name
        assert slice_ == estimate(table.take(rows), "accuracy")
        assert slice_.exact
    assert sum(slice_.n for slice_ in found.values()) == 400


def test_slices_of_a_sample_are_weighted_and_never_exact():
    table = results()
    rows = np.arange(0, 400, 2)
    subset = Subset(rows, np.where(rows < 200, 1.01, 2.99), (rows >= 200).astype(int))
    found = estimate_slices(table.take(rows), "loss", "document", subset=subset)
    for name, slice_ in found.items():
        inside = table.groups["document"][rows] == name
        weights = subset.weights[inside]
        kept = table.take(rows[inside])
        assert slice_.value == pytest.approx((weights @ kept.loss_sum) / (weights @ kept.target_count))
        assert not slice_.exact


def test_slices_may_be_named_by_anything():
    table = ExampleResults([0, 1, 2], [1.0, 2.0, 3.0], [1, 1, 1], groups={"mixed": np.array(["a", 1, None], object)})
    assert list(estimate_slices(table, "loss", "mixed")) == [None, 1, "a"]
    with pytest.raises(ValueError, match="group is 'topic'; the results' group columns are .'mixed'."):
        estimate_slices(table, "loss", "topic")


@pytest.mark.parametrize(("missing", "kind"), [(np.nan, float), (np.nan, object), (pd.NA, object)])
def test_missing_values_are_one_slice(missing, kind):
    groups = {"score": np.array([missing, 2.0, missing, 1.0], kind)}
    table = ExampleResults([0, 1, 2, 3], [1.0, 2.0, 4.0, 3.0], [1, 1, 1, 1], groups=groups)
    found = estimate_slices(table, "loss", "score")
    assert {name: (slice_.n, slice_.value) for name, slice_ in found.items()} == {
        None: (2, 2.5),
        1.0: (1, 3.0),
        2.0: (1, 2.0),
    }


def test_empty_names_are_names():
    table = ExampleResults([0, 1, 2], [1.0, 2.0, 3.0], [1] * 3, groups={"x": np.array(["", "a", None], object)})
    assert list(estimate_slices(table, "loss", "x")) == [None, "", "a"]


@pytest.mark.parametrize("clusters", [["a", None, "a", float("nan")], [1.0, np.nan, 1.0, np.nan], [7, None, 7, None]])
def test_rows_without_a_cluster_are_clusters_of_their_own(clusters):
    design = SampleDesign.simple(4, clusters=np.array(clusters, object))
    first, second, third, fourth = design.clusters
    assert first == third
    assert len({first, second, fourth}) == 3


def test_a_sample_whose_weights_nearly_add_up_to_its_rows_is_not_exact():
    assert not mean_interval(np.arange(49.0), design=SampleDesign(np.full(49, 1.005), np.zeros(49, int))).exact


def test_a_design_for_any_estimator():
    table = results()
    order = np.argsort(-table.index)
    design = design_of_results(table, order, n_total=900, clusters="document")
    assert (design.n, design.n_total) == (400, 900)
    np.testing.assert_array_equal(np.unique(design.clusters), np.arange(len(np.unique(table.groups["document"]))))


def test_an_estimate_says_what_it_is():
    assert str(wilson_interval(20, 20)) == "1 [0.838875, 1] (95%, wilson, all 20 examples)"
    assert str(mean_interval([])) == "none no interval (95%, empty, all 0 examples)"
