"""Differences on the same rows, and levels anchored to a full evaluation."""

import math

import numpy as np
import pytest
from scipy import stats

from hf_trainplus import ExampleResults
from hf_trainplus.decisions.estimate import (
    anchored_estimate,
    difference_interval,
    estimate,
    estimate_difference,
    loss_difference_interval,
    mean_interval,
)
from hf_trainplus.decisions.estimators.signs import tango_bounds
from hf_trainplus.decisions.subset import Subset

GENERATOR = np.random.default_rng(0)
FIRST = GENERATOR.gamma(2, 1, 300)
SECOND = FIRST + GENERATOR.normal(0.05, 0.2, 300)


def test_a_paired_difference_is_the_paired_t_interval():
    found = difference_interval(FIRST, SECOND)
    oracle = stats.ttest_rel(FIRST, SECOND).confidence_interval(0.95)
    assert (found.ci_low, found.ci_high) == (pytest.approx(oracle.low), pytest.approx(oracle.high))
    assert found.exact


def test_pairing_is_worth_many_rows():
    paired = difference_interval(FIRST, SECOND)
    apart = math.hypot(stats.sem(FIRST), stats.sem(SECOND))
    assert paired.population_standard_error < 0.2 * apart


def tango_score(plus, minus, n, difference):
    """Maximize the likelihood at an assumed difference by brute force: an oracle for the closed form."""
    low = max(0.0, -difference)
    share = np.linspace(low + 1e-12, (1 - difference) / 2 - 1e-12, 200_001)
    with np.errstate(divide="ignore", invalid="ignore"):
        likelihood = (
            plus * np.log(share + difference)
            + minus * np.log(share)
            + (n - plus - minus) * np.log(1 - 2 * share - difference)
        )
    best = share[np.nanargmax(likelihood)]
    return (plus - minus - n * difference) / math.sqrt(n * (2 * best + difference * (1 - difference)))


@pytest.mark.parametrize(("plus", "minus", "n"), [(9, 4, 60), (1, 7, 100), (20, 20, 100), (3, 1, 500)])
def test_tango_bounds_are_where_the_score_statistic_reaches_the_critical_value(plus, minus, n):
    low, high = tango_bounds(plus / n, minus / n, n, 1.959964)
    assert tango_score(plus, minus, n, low) == pytest.approx(1.96, abs=0.002)
    assert tango_score(plus, minus, n, high) == pytest.approx(-1.96, abs=0.002)


def test_no_discordant_pair_is_not_certainty():
    found = difference_interval(np.ones(100), np.ones(100))
    assert found.value == 0
    assert found.ci_low == pytest.approx(-(1.96**2) / (100 + 1.96**2), abs=1e-4)
    assert found.ci_high == pytest.approx(-found.ci_low)
    assert found.method == "tango"
    sample = difference_interval(np.ones(100), np.ones(100), n_total=110)
    assert 0 < sample.ci_high < 0.5 * found.ci_high


def test_one_sided_discordance():
    found = difference_interval([1.0] * 50 + [0.0] * 50, np.zeros(100))
    assert found.value == 0.5
    assert 0.38 < found.ci_low < 0.42
    everything = difference_interval(np.ones(50), np.zeros(50))
    assert (everything.value, everything.ci_high) == (1.0, pytest.approx(1.0, abs=1e-9))


def test_token_weighted_difference():
    counts = GENERATOR.integers(1, 20, 300)
    found = loss_difference_interval(FIRST * counts, SECOND * counts, counts, n_total=900)
    change = (FIRST - SECOND) * counts
    assert found.value == pytest.approx(change.sum() / counts.sum())
    residual = (change - found.value * counts) / counts.mean()
    assert found.standard_error == pytest.approx(math.sqrt(residual.var(ddof=1) / 300 * (2 / 3)), rel=0.01)


def test_a_level_is_anchored_to_a_full_evaluation():
    reference, current = GENERATOR.gamma(2, 1, 2000), None
    current = reference + GENERATOR.normal(-0.1, 0.1, 2000)
    rows = np.sort(GENERATOR.permutation(2000)[:200])
    change = difference_interval(current[rows], reference[rows], n_total=2000)
    level = anchored_estimate(change, mean_interval(reference))
    assert level.value == pytest.approx(reference.mean() + change.value)
    assert level.standard_error == change.standard_error
    assert level.standard_error < 0.15 * mean_interval(current[rows], n_total=2000).standard_error
    assert level.population_standard_error == pytest.approx(math.hypot(change.standard_error, stats.sem(reference)))
    assert level.population_ci_low < level.ci_low < current.mean() < level.ci_high < level.population_ci_high
    assert (level.exact, level.n, level.n_total) == (False, 200, 2000)


def test_anchors_must_fit():
    change = difference_interval(FIRST, SECOND, n_total=900)
    with pytest.raises(ValueError, match="the reference used 300 of 900 examples; evaluate it on all"):
        anchored_estimate(change, mean_interval(FIRST, n_total=900))
    with pytest.raises(ValueError, match="disagree: n_total 900 and 300"):
        anchored_estimate(change, mean_interval(FIRST))


def test_missing_parts_stay_missing():
    reference = mean_interval(np.arange(9.0))
    broken = anchored_estimate(difference_interval([math.nan, 1.0], [0.0, 1.0], n_total=9), reference)
    assert math.isnan(broken.value)
    assert (broken.ci_low, broken.standard_error, broken.population_ci_low) == (None, None, None)


def tables():
    counts = GENERATOR.integers(1, 9, 300)
    order = GENERATOR.permutation(300)
    first = ExampleResults(
        np.arange(300), FIRST * counts, counts, scores={"right": FIRST < 2}, groups={"document": np.arange(300) // 10}
    )
    second = ExampleResults(order, (SECOND * counts)[order], counts[order], scores={"right": (SECOND < 2)[order]})
    return first, second


def test_results_are_paired_by_row_in_any_order():
    first, second = tables()
    loss = estimate_difference(first, second)
    assert loss.value == pytest.approx(first.loss - second.loss)
    right = estimate_difference(first, second, "right")
    assert right.value == pytest.approx(estimate(first, "right").value - estimate(second, "right").value)
    assert right.method == "tango"
    clustered = estimate_difference(first, second, clusters="document")
    assert clustered.population_standard_error != pytest.approx(loss.population_standard_error)


def test_a_subset_weighs_differences():
    first, second = tables()
    rows = np.arange(0, 300, 3)
    subset = Subset(rows, np.where(rows < 150, 2.0, 4.0), (rows >= 150).astype(int))
    inside = np.isin(second.index, rows)
    found = estimate_difference(first.take(rows), second.take(inside), "right", subset=subset)
    change = (FIRST[rows] < 2).astype(float) - (SECOND[rows] < 2)
    assert found.value == pytest.approx(np.average(change, weights=subset.weights))


def test_other_rows_and_targets_are_refused():
    first, second = tables()
    with pytest.raises(ValueError, match="2 rows are in one of the two results only"):
        estimate_difference(first.take(np.arange(299)), second.take(second.index != 0))
    with pytest.raises(ValueError, match="target counts differ"):
        estimate_difference(first, ExampleResults(np.arange(300), np.ones(300), np.full(300, 99)))
    with pytest.raises(ValueError, match="metric is 'bleu'; allowed are loss, right"):
        estimate_difference(first, second, "bleu")
    with pytest.raises(ValueError, match="give the scores of the same rows"):
        difference_interval([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="give one value a row in each"):
        loss_difference_interval([1.0], [1.0, 2.0], [1])
