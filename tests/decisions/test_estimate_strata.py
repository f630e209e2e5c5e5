"""Standard errors against formulas written out, scipy and statsmodels."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats.sandwich_covariance import cov_cluster

from hf_trainplus import ExampleResults
from hf_trainplus.decisions.estimate import SampleDesign, estimate, loss_interval, mean_interval, ratio_interval

GENERATOR = np.random.default_rng(0)
VALUES = GENERATOR.normal(1.0, 2.0, 200)


def test_symmetric_values_have_students_interval():
    found = mean_interval(VALUES)
    low, high = stats.t.interval(0.95, 199, VALUES.mean(), stats.sem(VALUES))
    assert (found.ci_low, found.ci_high) == (pytest.approx(low), pytest.approx(high))
    assert found.population_standard_error == pytest.approx(stats.sem(VALUES))


def test_simple_sample_has_the_finite_population_correction():
    found = mean_interval(VALUES, n_total=800)
    assert found.standard_error == pytest.approx(stats.sem(VALUES) * math.sqrt(1 - 200 / 800))
    assert found.population_standard_error == pytest.approx(stats.sem(VALUES))


def test_stratified_error_is_the_textbook_formula():
    strata = np.repeat([7, 3, 5], [50, 30, 20])
    sizes = {7: 1000, 3: 60, 5: 20}
    values = GENERATOR.normal(strata, strata)
    weights = np.array([sizes[s] / (strata == s).sum() for s in strata])
    found = mean_interval(values, design=SampleDesign(weights, strata))
    mean = variance = satterthwaite = 0.0
    for stratum, size in sizes.items():
        own = values[strata == stratum]
        share, n = size / 1080, len(own)
        term = share**2 * own.var(ddof=1) / n * (1 - n / size)
        mean += share * own.mean()
        variance += term
        satterthwaite += term**2 / (n - 1)
    assert found.value == pytest.approx(mean)
    assert found.standard_error == pytest.approx(math.sqrt(variance))
    reach = stats.t.ppf(0.975, variance**2 / satterthwaite) * math.sqrt(variance)
    assert found.ci_high - found.value == pytest.approx(reach)


def test_variances_are_shrunk_to_the_expected_shape():
    strata = np.repeat([0, 1], [10, 20])
    values = np.concatenate([np.full(10, 2.5), GENERATOR.normal(3, 1, 20)])
    spread = np.where(strata == 0, 0.2, 1.0)
    design = SampleDesign(np.where(strata == 0, 50.0, 10.0), strata)
    found = mean_interval(values, design=design, spread=spread)
    own = values[20 - 10 :].var(ddof=1)
    scale = 19 * own / (9 * 0.04 + 19)
    variances = [3 * scale * 0.04 / 12, (19 * own + 3 * scale) / 22]
    terms = [(500 / 700) ** 2 * variances[0] / 10 * 0.98, (200 / 700) ** 2 * variances[1] / 20 * 0.9]
    assert found.standard_error == pytest.approx(math.sqrt(sum(terms)))
    assert found.standard_error > mean_interval(values, design=design).standard_error


def test_a_stratum_of_one_row_borrows_its_variance():
    strata = np.array([0, 0, 0, 0, 1])
    found = mean_interval([0.3, 1.7, 2.5, 3.1, 9.5], design=SampleDesign([10.0, 10, 10, 10, 40], strata))
    own = np.var([0.3, 1.7, 2.5, 3.1], ddof=1)
    assert found.standard_error == pytest.approx(math.sqrt(0.25 * own / 4 * 0.9 + 0.25 * own * (1 - 1 / 40)))


def test_only_strata_of_one_row_leave_the_error_unknown():
    found = mean_interval([0.3, 9.5], design=SampleDesign([10.0, 40], [0, 1]))
    assert found.value == pytest.approx((3 + 380) / 50)
    assert found.standard_error is None
    assert found.ci_low is None


def test_strata_drawn_whole_leave_no_error():
    strata = np.repeat([0, 1], [5, 5])
    found = mean_interval(np.arange(10.0), design=SampleDesign(np.repeat([1.0, 3.0], 5), strata))
    assert found.standard_error == pytest.approx(math.sqrt(0.75**2 * 2.5 / 5 * (1 - 1 / 3)))


def test_rounding_is_no_variance():
    found = mean_interval(np.full(30, 0.1), design=SampleDesign(np.full(30, 7.0), np.arange(30) % 3))
    assert found.standard_error == 0.0
    right = mean_interval(np.tile([1.0, 1.0, 0.0], 10), design=SampleDesign(np.full(30, 7.0), np.arange(30) % 3))
    assert right.ci_high - right.ci_low > 0.05


def test_one_row_has_a_value_and_no_interval():
    found = mean_interval([0.25])
    assert (found.value, found.exact, found.standard_error) == (0.25, True, 0.0)
    assert found.population_standard_error is None
    assert found.ci_low is None
    assert mean_interval([0.25], n_total=9).standard_error is None


@pytest.mark.parametrize("ends", [(20, 21), (3, 30)])
def test_clusters_agree_with_statsmodels(ends):
    clusters = np.random.default_rng(1).integers(*ends, 200) if ends[0] < 20 else np.arange(200) % 20
    values = VALUES + np.random.default_rng(2).normal(0, 2, 40)[clusters]
    found = mean_interval(values, design=SampleDesign.simple(200, clusters=clusters))
    fit = sm.OLS(values, np.ones(200)).fit()
    assert found.population_standard_error == pytest.approx(math.sqrt(cov_cluster(fit, clusters)[0, 0]))
    assert found.standard_error == 0.0
    reach = stats.t.ppf(0.975, len(np.unique(clusters)) - 1) * found.population_standard_error
    assert found.ci_high - found.value == pytest.approx(reach)


def test_clustered_ratio_agrees_with_weighted_least_squares():
    counts = np.random.default_rng(3).integers(1, 30, 200)
    clusters = np.random.default_rng(4).integers(0, 25, 200)
    sums = counts * np.random.default_rng(5).gamma(2, 0.5, 200)
    table = ExampleResults(np.arange(200), sums, counts, groups={"document": clusters})
    found = estimate(table, clusters="document")
    fit = sm.WLS(sums / counts, np.ones(200), weights=counts).fit()
    assert found.value == pytest.approx(fit.params[0])
    assert found.population_standard_error == pytest.approx(math.sqrt(cov_cluster(fit, clusters)[0, 0]))


def test_clusters_widen_the_interval_for_shares():
    clusters = np.repeat(np.arange(20), 10)
    right = np.repeat(np.random.default_rng(0).random(20) < 0.6, 10)
    plain = mean_interval(right)
    grouped = mean_interval(right, design=SampleDesign.simple(200, clusters=clusters))
    assert grouped.ci_high - grouped.ci_low > 2 * (plain.ci_high - plain.ci_low)
    certain = mean_interval(np.ones(200), design=SampleDesign.simple(200, clusters=clusters))
    assert certain.ci_low < 20 / (20 + 1.96**2)


def test_clusters_in_a_sample_of_rows_leave_the_sets_error_alone():
    clusters = np.repeat(np.arange(40), 5)
    values = np.random.default_rng(1).normal(0, 3, 40)[clusters] + VALUES
    grouped = mean_interval(values, design=SampleDesign.simple(200, 1000, clusters=clusters))
    plain = mean_interval(values, n_total=1000)
    assert grouped.standard_error == pytest.approx(plain.standard_error)
    assert grouped.population_standard_error > plain.population_standard_error


def test_whole_clusters_are_the_unit_when_they_were_drawn():
    clusters = np.repeat(np.arange(12), 5)
    values = np.random.default_rng(1).normal(0, 3, 12)[clusters] + VALUES[:60]
    found = mean_interval(values, design=SampleDesign(np.full(60, 4.0), np.zeros(60, int), clusters, 48))
    means = values.reshape(12, 5).mean(axis=1)
    assert found.standard_error == pytest.approx(stats.sem(means) * math.sqrt(0.75))
    assert found.population_standard_error == pytest.approx(stats.sem(means))
    exact = mean_interval(values, design=SampleDesign(np.ones(60), np.zeros(60, int), clusters, 12))
    assert (exact.exact, exact.standard_error) == (True, 0.0)


def test_one_cluster_says_nothing_about_the_population():
    found = mean_interval(VALUES, design=SampleDesign.simple(200, clusters=np.zeros(200)))
    assert found.population_standard_error is None
    assert found.ci_low is None
    assert mean_interval(np.ones(200), design=SampleDesign.simple(200, clusters=np.zeros(200))).ci_low is None


def test_ratio_error_is_the_textbook_one_of_the_jackknife():
    counts, sums = GENERATOR.integers(1, 9, 80), GENERATOR.random(80)
    found = ratio_interval(sums, counts, n_total=400)
    left_out = (sums.sum() - sums) / (counts.sum() - counts)
    assert found.standard_error == pytest.approx(math.sqrt(79 * left_out.var() * 0.8) * 80 / 79)
    residual = (sums - sums.sum() / counts.sum() * counts) / counts.mean()
    assert found.standard_error == pytest.approx(math.sqrt(residual.var(ddof=1) / 80 * 0.8), rel=0.03)


def test_a_row_with_all_targets_leaves_no_error_to_see():
    found = ratio_interval([3.0, 0.0, 0.0], [6, 0, 0])
    assert (found.value, found.standard_error, found.population_standard_error) == (0.5, 0.0, None)
    assert ratio_interval([3.0, 0.0], [6, 0], n_total=9).standard_error is None
    assert found.ci_low is None


def test_skewed_losses_reach_further_up_than_down():
    losses = np.random.default_rng(0).lognormal(0, 1.2, 150)
    found = loss_interval(losses, np.ones(150))
    assert found.ci_high - found.value > 1.2 * (found.value - found.ci_low)
    signed = mean_interval(losses - np.median(losses))
    assert signed.ci_high - signed.value == pytest.approx(signed.value - signed.ci_low)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [0, 1]), "allowed is one value a row"),
        (([0.0, 1.0], [0, 0]), "not positive numbers"),
        (([np.nan], [0]), "not positive numbers"),
        (([1.0, 1.0], [0, 0], [1]), "give one cluster a row"),
        (([1.0, 1.0], [0, 0], [1, 2], 1), "2 clusters found, clusters_total=1"),
    ],
)
def test_bad_designs_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SampleDesign(*arguments)


def test_designs_must_fit_their_values():
    with pytest.raises(ValueError, match="the design has 5 rows and the values have 3"):
        mean_interval([1, 2, 3], design=SampleDesign.simple(5))
    with pytest.raises(ValueError, match="n_total and design were both given"):
        mean_interval([1, 2, 3], n_total=5, design=SampleDesign.simple(3))
    with pytest.raises(ValueError, match="numerator .* and denominator"):
        ratio_interval([1.0], [1.0, 2.0])
