from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hf_trainplus.decisions.race import Race, drive
from hf_trainplus.decisions.racing.certain import certain_range
from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.design import nested_design
from hf_trainplus.decisions.racing.metrics import LossMetric, ScoreMetric, StatisticMetric
from hf_trainplus.decisions.racing.paired import PairedDifference, critical_value
from hf_trainplus.decisions.racing.paired import paired_difference as difference_over
from hf_trainplus.decisions.racing.regression import Regression
from hf_trainplus.decisions.racing.sample import Sample
from hf_trainplus.decisions.racing.samples import Samples
from hf_trainplus.decisions.racing.strata import Strata
from hf_trainplus.decisions.replay import ReplayDriver
from hf_trainplus.results import ExampleResults
from tests.support.race_traces import synthetic

SCORE = ScoreMetric("score", greater_is_better=False)
BIT = ScoreMetric("score", greater_is_better=False, lower=0.0, upper=1.0)


def paired_difference(first, second, design, depth, metric, known=None):
    sample = Sample(design, depth)
    regression = None if known is None else Regression(sample, known[0][sample.rows], known[1])
    return difference_over(first, second, sample, metric, regression)


def column_of(values, metric=SCORE, rows=None, counts=None, statistics=None):
    size = len(values)
    counts = np.ones(size) if counts is None else counts
    extra = {} if statistics is None else {metric.name: statistics}
    table = ExampleResults(np.arange(size), values, counts, scores={"score": values}, statistics=extra)
    table = table if rows is None else table.take(np.asarray(rows))
    values = metric.columns(table)
    column = Column.empty(size, values.shape[1])
    column.add(table, values)
    return column


def one_stratum(size, seed=0):
    return nested_design(Strata(np.zeros(size, dtype=np.int64), np.ones(1)), seed=seed)


def quantile_design(clue, scale, seed=0):
    strata = np.empty(len(clue), dtype=np.int64)
    strata[np.argsort(clue)] = np.arange(len(clue)) * len(scale) // len(clue)
    return nested_design(Strata(strata, np.asarray(scale)), seed=seed)


def test_every_row_read_gives_the_exact_difference():
    rng = np.random.default_rng(0)
    a, b = rng.random(200), rng.random(200)
    found = paired_difference(column_of(a), column_of(b), one_stratum(200), 200, SCORE)
    assert (found.value, found.se) == (pytest.approx(a.mean() - b.mean()), 0.0)
    assert abs(found.z) == np.inf


def test_an_exact_tie_has_no_sign():
    a = np.random.default_rng(0).random(50)
    assert paired_difference(column_of(a), column_of(a), one_stratum(50), 50, SCORE).z == 0.0


def test_greater_is_better_turns_the_sign():
    rng = np.random.default_rng(0)
    a, b = rng.random(200), rng.random(200) + 0.1
    up = ScoreMetric("score", greater_is_better=True)
    rows = one_stratum(200).order[:80]
    first = paired_difference(column_of(a, SCORE, rows), column_of(b, SCORE, rows), one_stratum(200), 80, SCORE)
    second = paired_difference(column_of(a, up, rows), column_of(b, up, rows), one_stratum(200), 80, up)
    assert first.value == -second.value
    assert first.discordant == 80


def test_one_stratum_is_the_textbook_difference_with_finite_population_correction():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, 1, 500), rng.normal(0, 1, 500)
    design = one_stratum(500)
    rows = design.order[:100]
    d = a[rows] - b[rows]
    found = paired_difference(column_of(a, rows=rows), column_of(b, rows=rows), design, 100, SCORE)
    assert found.value == pytest.approx(d.mean())
    assert Sample(design, 100).variance_at(d, 0.0)[0] == pytest.approx(d.var(ddof=1) / 100 * (1 - 100 / 500))
    # the variance at a tie is never smaller than the plain one
    assert found.se**2 >= d.var(ddof=1) / 100 * (1 - 100 / 500) * (1 - 1e-12)


def test_a_fully_known_checkpoint_lends_its_exact_mean():
    rng = np.random.default_rng(0)
    known, other = rng.normal(0, 1, 400), rng.normal(0, 1, 400)
    design = one_stratum(400)
    rows = design.order[:60]
    found = paired_difference(column_of(other, rows=rows), column_of(known), design, 60, SCORE)
    assert found.value == pytest.approx((other - known)[rows].mean())


@pytest.mark.parametrize("depth", [120, 240, 500])
def test_stratified_intervals_cover(depth):
    rng = np.random.default_rng(1)
    clue = rng.exponential(1.0, 1500)
    a = clue * (1 + 0.2 * rng.normal(size=1500))
    b = clue * (1.02 + 0.3 * rng.normal(size=1500))
    true = a.mean() - b.mean()
    hits = 0
    for seed in range(500):
        design = quantile_design(clue, np.linspace(0.2, 1.0, 10), seed)
        rows = design.order[:depth]
        found = paired_difference(column_of(a, rows=rows), column_of(b, rows=rows), design, depth, SCORE)
        hits += abs(found.value - true) <= 1.96 * found.se
    assert 0.92 <= hits / 500 <= 0.985


def test_regression_on_known_columns_shortens_the_interval_and_keeps_its_coverage():
    rng = np.random.default_rng(2)
    x = rng.exponential(1.0, 1500)
    a = 1.3 * x + 0.05 * rng.normal(size=1500)
    b = x + 0.05 * rng.normal(size=1500)
    true, known = a.mean() - b.mean(), (x[:, None], np.array([x.mean()]))
    hits, ratio = 0, []
    for seed in range(500):
        design = one_stratum(1500, seed)
        rows = design.order[:120]
        first, second = column_of(a, rows=rows), column_of(b, rows=rows)
        plain = paired_difference(first, second, design, 120, SCORE)
        adjusted = paired_difference(first, second, design, 120, SCORE, known)
        hits += abs(adjusted.value - true) <= 1.96 * adjusted.se
        ratio.append(adjusted.se / plain.se)
    assert 0.92 <= hits / 500 <= 0.985
    assert np.mean(ratio) < 0.4


def test_an_extrapolating_regression_shows_a_large_error():
    # the covariate varies among the rows read only by noise, and hugely among the others
    rng = np.random.default_rng(3)
    size = 1000
    design = one_stratum(size)
    x = np.full(size, 1.0)
    x[design.order[:100]] += 1e-3 * rng.normal(size=100)
    x[design.order[100:]] += 50.0
    a, b = rng.normal(0, 1, size), rng.normal(0, 1, size)
    rows = design.order[:100]
    first, second = column_of(a, rows=rows), column_of(b, rows=rows)
    plain = paired_difference(first, second, design, 100, SCORE)
    wild = paired_difference(first, second, design, 100, SCORE, (x[:, None], np.array([x.mean()])))
    assert abs(wild.z) < 3.5
    assert wild.se > 100 * plain.se


def test_rare_rows_against_the_winner_widen_the_error():
    # gains are fully read, losses thinly: few losses seen make both estimate and variance too small
    strata = Strata(np.repeat([0, 1], [200, 1800]), np.array([1.0, 0.3]), np.array([True, False]))
    design = nested_design(strata, seed=0)
    depth = design.milestone
    counts = design.counts(depth)
    stratum = design.ordered_stratum[:depth]
    values = np.zeros(depth)
    values[np.flatnonzero(stratum == 0)[:60]] = -1.0
    values[np.flatnonzero(stratum == 1)[:2]] = 1.0
    estimate = float((design.sizes / design.size / counts)[stratum] @ values)
    assert estimate < 0
    sample = Sample(design, depth)
    plain = sample.variance_at(values, 0.0)[0]
    assert sample.variance_at(values, estimate)[0] > 2 * plain


def test_a_skewness_that_helps_is_not_used():
    design = one_stratum(1000)
    sample = Sample(design, 100)
    values = np.zeros(100)
    values[:5] = 1.0
    plain = sample.variance_at(values, 0.0)[0]
    # rows of the estimate's own sign: a true tie would hold fewer of them, not more
    assert sample.variance_at(values, 0.05)[0] == pytest.approx(plain)
    assert sample.variance_at(values, -0.05)[0] > plain


def test_rows_that_all_agree_do_not_make_the_others_certain():
    """A checkpoint wrong on all 100 rows read, of 4,500: its 5 % right rows are missed once in 200 samples."""
    size = 4500
    known = np.zeros(size)
    known[np.random.default_rng(0).permutation(size)[: size * 95 // 100]] = 1.0
    other = np.ones(size)
    strata = Strata((known == 0).astype(np.int64), np.array([1.0, 1.0]))
    design = nested_design(strata, seed=0)
    found = paired_difference(column_of(other, BIT, design.order[:100]), column_of(known, BIT), design, 100, BIT)
    assert found.value == pytest.approx(0.05)
    assert found.se > 0
    assert abs(found.z) < 2.6


@pytest.mark.parametrize(("differing", "low", "high"), [(10, 18, 24), (40, 85, 120)])
def test_few_differing_rows_leave_few_degrees_of_freedom(differing, low, high):
    sample = Sample(one_stratum(5000), 500)
    values = np.zeros(500)
    values[:differing] = 1.0
    assert low <= sample.variance_at(values, 0.0)[1] <= high
    normal = np.random.default_rng(0).normal(size=500)
    assert 350 <= sample.variance_at(normal, 0.0)[1] <= 700


@pytest.mark.parametrize("freedom", [6.0, 10.0, 25.0, 400.0])
@pytest.mark.parametrize("bound", [2.0, 3.5, 4.0])
def test_bounds_follow_students_t(bound, freedom):
    from scipy.stats import norm, t

    found = critical_value(bound, freedom)
    assert norm.isf(t.sf(found, freedom)) == pytest.approx(bound, rel=0.03)
    assert PairedDifference(found, 1.0, 100, 50, freedom).z == pytest.approx(bound, rel=1e-9)
    assert PairedDifference(-found, 1.0, 100, 50, freedom).z == pytest.approx(-bound, rel=1e-9)
    assert PairedDifference(found, 2.0, 100, 50, freedom).margin(bound) == pytest.approx(2 * found)


def test_an_exact_difference_has_no_margin():
    assert PairedDifference(0.1, 0.0, 100, 50).margin(3.5) == 0.0


def test_wrong_signs_beyond_the_bound_are_rarer_than_claimed():
    """Near ties, 13 looks, 3.5 errors: theory says 0.2 % wrong signs, and rare 0/1 moves are the hard case."""
    rng = np.random.default_rng(4)
    size, wrong, judged = 1500, 0, 0
    for trial in range(400):
        loss = rng.exponential(0.6, size)
        base = (loss > 0.9) * 1.0
        flips = rng.random(size) < np.exp(-3.0 * np.abs(loss - 0.9)) * 0.25
        other = np.where(flips, 1 - base, base)
        true = other.mean() - base.mean()
        design = quantile_design(-np.abs(loss - 0.9), np.linspace(0.1, 1.0, 10), trial)
        second = column_of(base, BIT)
        for depth in look_depths_of(size):
            first = column_of(other, BIT, design.order[:depth])
            found = paired_difference(first, second, design, depth, BIT)
            if found.discordant >= 8 and abs(found.z) > 3.5:
                judged += 1
                wrong += np.sign(found.value) != np.sign(true)
                break
    assert judged > 100
    assert wrong <= 3


def look_depths_of(size):
    from hf_trainplus.decisions.racing.config import LOOKS
    from hf_trainplus.decisions.racing.design import look_depths

    return look_depths(LOOKS[:-1], size, first_rows=100, chunk=1)


def test_token_weights_make_the_ratio_of_sums():
    rng = np.random.default_rng(5)
    counts = rng.integers(1, 30, 600).astype(float)
    a, b = rng.gamma(2, 1, 600) * counts, rng.gamma(2, 1, 600) * counts
    metric = LossMetric()
    exact = paired_difference(
        column_of(a, metric, counts=counts), column_of(b, metric, counts=counts), one_stratum(600), 600, metric
    )
    assert exact.value == pytest.approx(a.sum() / counts.sum() - b.sum() / counts.sum())
    hits = 0
    for seed in range(500):
        design = one_stratum(600, seed)
        rows = design.order[:150]
        found = paired_difference(
            column_of(a, metric, rows, counts), column_of(b, metric, rows, counts), design, 150, metric
        )
        hits += abs(found.value - exact.value) <= 1.96 * found.se
    assert 0.92 <= hits / 500 <= 0.985


def test_rows_without_targets_weigh_nothing():
    metric = LossMetric()
    table = ExampleResults([0, 1], [np.nan, 3.0], [0, 2])
    assert metric.value(metric.columns(table).mean(axis=0)) == 1.5


def test_statistics_are_judged_by_the_delta_method():
    rng = np.random.default_rng(6)
    length = rng.integers(5, 30, 800).astype(float)
    a = np.column_stack([rng.binomial(length.astype(int), 0.20), length])
    b = np.column_stack([rng.binomial(length.astype(int), 0.22), length])
    metric = StatisticMetric("wer", lambda m: m[0] / m[1], greater_is_better=False)
    zero = np.zeros(800)
    true = a[:, 0].sum() / length.sum() - b[:, 0].sum() / length.sum()
    hits = 0
    for seed in range(500):
        design = one_stratum(800, seed)
        rows = design.order[:160]
        found = paired_difference(
            column_of(zero, metric, rows, statistics=a),
            column_of(zero, metric, rows, statistics=b),
            design,
            160,
            metric,
        )
        hits += abs(found.value - true) <= 1.96 * found.se
    assert 0.92 <= hits / 500 <= 0.985


@pytest.mark.parametrize("greater_is_better", [False, True])
def test_what_is_certain_is_true(greater_is_better):
    rng = np.random.default_rng(7)
    metric = ScoreMetric("score", greater_is_better=greater_is_better, lower=0.0, upper=1.0)
    sign, certain = (-1 if greater_is_better else 1), 0
    for _ in range(300):
        known, other = (rng.random(40) < 0.3) * 1.0, (rng.random(40) < 0.3) * 1.0
        rows = rng.permutation(40)[: rng.integers(1, 41)]
        low, high = certain_range(column_of(other, metric, rows), column_of(known, metric), metric)
        true = sign * (other.sum() - known.sum())
        assert low <= true <= high
        certain += low >= 0 or high < 0
    assert certain > 50


def test_a_loss_is_bounded_from_below_only():
    metric = LossMetric()
    known, other = column_of(np.array([1.0, 0.5]), metric), column_of(np.array([2.0, 0.1]), metric, [0])
    low, high = certain_range(other, known, metric)
    assert (low, high) == (pytest.approx(0.5), np.inf)


def test_unbounded_scores_are_never_certain():
    first, second = column_of(np.array([1.0, 0.0]), rows=[0]), column_of(np.array([0.0, 0.0]))
    assert certain_range(first, second, SCORE) == (-np.inf, np.inf)


@pytest.mark.parametrize("metric", [ScoreMetric("f1", greater_is_better=True), StatisticMetric("f1", max, True)])
def test_a_missing_column_is_named(metric):
    with pytest.raises(ValueError, match="'f1'"):
        metric.columns(ExampleResults([0], [1.0], [1]))


def test_samples_are_kept_by_their_rows_and_not_past_their_design():
    trace = synthetic(0, rows=1000)
    metric, driver = trace.metric("error"), ReplayDriver(trace)
    race = Race(metric, trace.size)
    for index in range(6):
        drive(race.observe(index), driver)
    state, samples = race.state, Samples()
    first, _ = samples.get(state, metric, 100)
    shallow = [samples.get(state, metric, depth)[0] for depth in range(101, 121)]
    assert samples.get(state, metric, 100)[0] is first  # twenty others are fewer than three sets of rows
    for depth in (998, 999, 1000):
        samples.get(state, metric, depth)
    assert samples.get(state, metric, 101)[0] is not shallow[0]
    held = samples.get(state, metric, 1000)[0]
    state.design = replace(state.design)  # another order, though its number is the same
    assert samples.get(state, metric, 1000)[0] is not held
    assert len(samples._kept) == 1
