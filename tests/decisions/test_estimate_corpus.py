"""Corpus metrics by the delta method, and any metric at all by the jackknife."""

import math

import jiwer
import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF
from scipy import stats
from sklearn.metrics import f1_score

from hf_trainplus.decisions.estimate import (
    SampleDesign,
    f1_interval,
    jackknife_interval,
    jackknife_intervals,
    mean_interval,
    ratio_interval,
    smooth_interval,
)

WORDS = [f"w{i}" for i in range(60)]


def corpus(n=150, seed=0):
    generator = np.random.default_rng(seed)
    references = [[WORDS[int(i)] for i in generator.zipf(1.4, generator.integers(5, 30)) % 60] for _ in range(n)]
    quality = generator.beta(6, 2, n)
    outputs = [
        [word if generator.random() < good else WORDS[int(generator.integers(60))] for word in reference]
        for reference, good in zip(references, quality, strict=True)
    ]
    return [" ".join(output) for output in outputs], [" ".join(reference) for reference in references]


def sacrebleu_statistics(metric, outputs, references):
    return np.array(metric._extract_corpus_statistics(outputs, [references]), dtype=float)


def bleu_value(totals):
    length, reference_length = int(totals[0]), int(totals[1])
    return BLEU.compute_bleu(list(totals[2:6]), list(totals[6:]), length, reference_length).score


def leave_one_out_error(statistics, value):
    totals = statistics.sum(axis=0)
    left = np.array([value(totals - row) for row in statistics])
    n = len(left)
    return math.sqrt((n - 1) / n * ((left - left.mean()) ** 2).sum())


def test_bleu_and_its_error_agree_with_sacrebleu_and_leave_one_out():
    outputs, references = corpus()
    statistics = sacrebleu_statistics(BLEU(), outputs, references)
    found = smooth_interval(statistics, bleu_value)
    assert found.value == pytest.approx(BLEU().corpus_score(outputs, [references]).score)
    assert found.exact
    assert found.population_standard_error == pytest.approx(leave_one_out_error(statistics, bleu_value), rel=0.03)


def test_chrf_and_its_error():
    outputs, references = corpus()
    chrf = CHRF()
    statistics = sacrebleu_statistics(chrf, outputs, references)

    def value(totals):
        return chrf._compute_f_score(list(totals))

    found = smooth_interval(statistics, value)
    assert found.value == pytest.approx(chrf.corpus_score(outputs, [references]).score)
    assert found.population_standard_error == pytest.approx(leave_one_out_error(statistics, value), rel=0.03)


def test_wer_is_a_ratio_whichever_way_it_is_taken():
    outputs, references = corpus()
    counts = [jiwer.process_words(reference, output) for output, reference in zip(outputs, references, strict=True)]
    statistics = np.array([(c.substitutions + c.deletions + c.insertions, len(c.references[0])) for c in counts])
    smooth = smooth_interval(statistics, lambda totals: totals[0] / totals[1])
    ratio = ratio_interval(statistics[:, 0], statistics[:, 1])
    assert smooth.value == pytest.approx(jiwer.wer(references, outputs))
    assert smooth.value == ratio.value
    assert smooth.population_standard_error == pytest.approx(ratio.population_standard_error, rel=0.02)


def test_samples_strata_and_clusters_reach_corpus_metrics():
    outputs, references = corpus()
    statistics = sacrebleu_statistics(BLEU(), outputs, references)
    full = smooth_interval(statistics, bleu_value)
    sample = smooth_interval(statistics, bleu_value, n_total=600)
    assert sample.value == pytest.approx(full.value)
    assert sample.standard_error == pytest.approx(full.population_standard_error * math.sqrt(0.75), rel=1e-3)
    doubled = np.repeat(statistics, 2, axis=0)
    clusters = np.repeat(np.arange(150), 2)
    grouped = smooth_interval(doubled, bleu_value, design=SampleDesign.simple(300, clusters=clusters))
    assert grouped.population_standard_error == pytest.approx(full.population_standard_error, rel=0.01)


def test_scales_keep_a_metric_in_its_range():
    statistics = np.column_stack([np.random.default_rng(0).random(60) < 0.03, np.ones(60)])
    plain, logit = (
        smooth_interval(statistics, lambda totals: totals[0] / totals[1], transform=transform)
        for transform in ("identity", "logit")
    )
    assert plain.ci_low < 0 < logit.ci_low
    assert logit.ci_high < 1
    atanh = smooth_interval(statistics, lambda totals: 2 * totals[0] / totals[1] - 1, transform="atanh")
    assert atanh.ci_low > -1
    log = smooth_interval(statistics, lambda totals: totals[0] / totals[1], transform="log")
    assert log.ci_low > 0
    with pytest.raises(ValueError, match="transform is 'probit'; allowed are 'identity', 'log', 'logit', 'atanh'"):
        smooth_interval(statistics, lambda totals: 0.0, transform="probit")


def test_a_function_that_rounds_its_counts_still_has_a_slope():
    statistics = np.random.default_rng(0).poisson(40, (300, 2)).astype(float)
    smooth = smooth_interval(statistics, lambda totals: totals[0] / totals[1])
    rounded = smooth_interval(statistics, lambda totals: int(totals[0]) / int(totals[1]))
    assert rounded.population_standard_error == pytest.approx(smooth.population_standard_error, rel=0.05)


def test_what_is_not_finite_has_no_interval():
    statistics = np.ones((5, 2)) * np.arange(5)[:, None]
    broken = smooth_interval(statistics, lambda totals: math.nan)
    assert math.isnan(broken.value)
    assert broken.ci_low is None
    cliff = smooth_interval(statistics, lambda totals: 1.0 if totals[0] == 10 else math.inf)
    assert (cliff.value, cliff.ci_low) == (1.0, None)
    assert smooth_interval(np.empty((0, 2)), lambda totals: 1.0).value is None
    with pytest.raises(ValueError, match=r"statistics have shape \(3,\); allowed is \(n, k\)"):
        smooth_interval([1, 2, 3], lambda totals: 1.0)


VALUES = np.random.default_rng(0).gamma(2, 1, 400)


def test_jackknife_of_a_mean_is_near_its_standard_error():
    errors = [
        jackknife_interval(lambda rows: VALUES[rows].mean(), 400, seed=seed).population_standard_error
        for seed in range(40)
    ]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(stats.sem(VALUES), rel=0.05)


def test_jackknife_of_every_row_is_the_plain_jackknife():
    found = jackknife_interval(lambda rows: VALUES[:50][rows].mean(), 50, groups=50)
    assert found.population_standard_error == pytest.approx(stats.sem(VALUES[:50]))
    reach = stats.t.ppf(0.975, 49) * found.population_standard_error
    assert found.ci_high - found.value == pytest.approx(reach)


def test_jackknife_takes_every_value_of_compute_metrics():
    generator = np.random.default_rng(0)
    true = generator.integers(0, 3, 600)
    predicted = np.where(generator.random(600) < 0.25, generator.integers(0, 3, 600), true)
    calls = []

    def compute(rows):
        calls.append(len(rows))
        return {
            "accuracy": float((true[rows] == predicted[rows]).mean()),
            "f1": f1_score(true[rows], predicted[rows], average="macro"),
        }

    found = jackknife_intervals(compute, 600, n_total=3000)
    assert set(found) == {"accuracy", "f1"}
    assert calls == [600] + [570] * 20
    direct = f1_interval(predicted, true, average="macro", n_total=3000)
    assert found["f1"].value == pytest.approx(direct.value)
    assert found["f1"].standard_error == pytest.approx(direct.standard_error, rel=0.35)
    assert not found["f1"].exact
    assert found["f1"].standard_error / found["f1"].population_standard_error == pytest.approx(math.sqrt(0.8))


def test_paired_jackknife_sees_the_pairing():
    other = VALUES + np.random.default_rng(1).normal(0, 0.05, 400)
    paired = jackknife_interval(lambda rows: other[rows].mean() - VALUES[rows].mean(), 400)
    assert paired.population_standard_error < 0.1 * stats.sem(VALUES)


def test_clusters_are_left_out_whole():
    clusters = np.repeat(np.arange(80), 5)
    values = np.random.default_rng(2).normal(0, 2, 80)[clusters] + VALUES
    design = SampleDesign.simple(400, clusters=clusters)
    direct = mean_interval(values, design=design)
    errors = []
    for seed in range(30):
        seen = []

        def compute(rows, seen=seen):
            seen.append(set(clusters[rows]) & set(np.setdiff1d(clusters, clusters[rows])))
            return values[rows].mean()

        errors.append(jackknife_interval(compute, 400, design=design, seed=seed).population_standard_error)
        assert not any(seen)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(direct.population_standard_error, rel=0.06)


def test_weights_reach_a_metric_that_takes_them_and_bias_is_refused():
    design = SampleDesign(np.where(np.arange(400) < 100, 9.0, 1.0), (np.arange(400) < 100).astype(int))
    with pytest.raises(ValueError, match=r"weights vary by 115% and the metric takes none; .* or pass weighted=True"):
        jackknife_interval(lambda rows: VALUES[rows].mean(), 400, design=design)
    found = jackknife_interval(
        lambda rows, weights: np.average(VALUES[rows], weights=weights), 400, design=design, weighted=True
    )
    assert found.value == pytest.approx(design.mean(VALUES))
    assert found.population_standard_error is None
    assert found.standard_error > 0


def test_a_value_that_is_not_finite_has_no_interval():
    found = jackknife_intervals(lambda rows: {"a": math.nan, "b": 1.0 if len(rows) == 40 else math.inf}, 40)
    assert math.isnan(found["a"].value)
    assert found["a"].ci_low is None
    assert (found["b"].value, found["b"].ci_low) == (1.0, None)


@pytest.mark.parametrize("groups", [1, 41])
def test_groups_fit_the_rows(groups):
    with pytest.raises(ValueError, match=f"groups is {groups}; allowed are 2 to 40"):
        jackknife_interval(lambda rows: 1.0, 40, groups=groups)
