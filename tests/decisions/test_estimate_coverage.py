"""Nominal 95 % intervals must hold the truth in 92 to 98 % of 500 seeded draws, for the set and for the population.

Each cell draws samples of a known set (``set``) or whole sets of a known population (``population``) and counts how
often the interval holds the value that the set or the population really has.
"""

import functools
import math
import os
from pathlib import Path

import numpy as np
import pytest

from hf_trainplus import ExampleResults, representative_subset
from hf_trainplus.decisions.difficulty_order import difficulty_order
from hf_trainplus.decisions.estimate import (
    SampleDesign,
    anchored_estimate,
    auc_interval,
    difference_interval,
    estimate,
    f1_interval,
    jackknife_interval,
    loss_difference_interval,
    loss_interval,
    mcc_interval,
    mean_interval,
    smooth_interval,
)

DRAWS = 500


def coverage(draw, truth):
    """Share of draws whose interval holds the truth; a draw without an interval counts as a miss."""
    hits = 0
    for seed in range(DRAWS):
        found = draw(np.random.default_rng(seed))
        hits += found.ci_low is not None and found.ci_low <= truth <= found.ci_high
    return hits / DRAWS


def assert_covers(draw, truth):
    share = coverage(draw, truth)
    print(f"covered {share:.3f}")
    assert 0.92 <= share <= 0.98, f"covered {share:.3f}"


def rows_of(generator, total, n):
    return generator.permutation(total)[:n]


POPULATIONS = {
    "normal": (lambda g, n: g.normal(2, 1, n), 2.0),
    "exponential": (lambda g, n: g.exponential(1, n), 1.0),
    "gamma of shape 0.3": (lambda g, n: g.gamma(0.3, 1, n), 0.3),
    "beta": (lambda g, n: g.beta(0.5, 0.2, n), 0.5 / 0.7),
    "p = 0.05": (lambda g, n: g.random(n) < 0.05, 0.05),
    "p = 0.3": (lambda g, n: g.random(n) < 0.3, 0.3),
    "p = 0.9": (lambda g, n: g.random(n) < 0.9, 0.9),
}


@pytest.mark.parametrize("n", [100, 400])
@pytest.mark.parametrize("name", list(POPULATIONS))
def test_mean_of_the_population(name, n):
    draw, truth = POPULATIONS[name]
    assert_covers(lambda generator: mean_interval(draw(generator, n)), truth)


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("name", list(POPULATIONS))
def test_mean_of_the_set(name, share):
    values = np.asarray(POPULATIONS[name][0](np.random.default_rng(1), 1000), dtype=float)
    n = int(share * 1000)
    assert_covers(lambda generator: mean_interval(values[rows_of(generator, 1000, n)], n_total=1000), values.mean())


def losses(generator, n):
    counts = np.ceil(generator.lognormal(3, 0.8, n))
    return generator.gamma(2, 0.5 + 5 / (counts + 5), n) * counts, counts


@pytest.mark.parametrize("n", [100, 300])
def test_token_weighted_loss_of_the_set(n):
    sums, counts = losses(np.random.default_rng(0), 3000)

    def draw(generator):
        rows = rows_of(generator, 3000, n)
        return loss_interval(sums[rows], counts[rows], n_total=3000)

    assert_covers(draw, sums.sum() / counts.sum())


@pytest.mark.parametrize("n", [100, 300])
def test_perplexity_of_the_population(n):
    sums, counts = losses(np.random.default_rng(0), 400_000)

    def draw(generator):
        rows = generator.integers(400_000, size=n)
        return estimate(ExampleResults(np.arange(n), sums[rows], counts[rows]), "perplexity")

    assert_covers(draw, math.exp(sums.sum() / counts.sum()))


def labelled_set():
    generator = np.random.default_rng(0)
    labels = generator.choice(6, 2500, p=[0.4, 0.3, 0.15, 0.1, 0.04, 0.01])
    return labels, generator.gamma(1 + labels, 0.5), (generator.random(2500) < 0.95 - 0.1 * labels).astype(float)


@pytest.mark.parametrize("allocation", ["proportional", "equal", "neyman"])
@pytest.mark.parametrize("score", ["loss", "right"])
def test_subset_by_label(allocation, score):
    labels, loss, right = labelled_set()
    values = loss if score == "loss" else right

    def draw(generator):
        subset = representative_subset(
            {"label": labels}, 150, allocation=allocation, reference_loss=loss, seed=int(generator.integers(2**31))
        )
        return mean_interval(values[subset.indices], design=subset.design())

    assert_covers(draw, values.mean())


@pytest.mark.parametrize("strategy", ["random", "difficulty", "diversity"])
def test_subset_by_other_strategies(strategy):
    _, loss, _ = labelled_set()
    reference = loss * np.random.default_rng(1).lognormal(0, 0.4, 2500)
    options = {"random": {}, "difficulty": {"reference_loss": reference}, "diversity": {"features": reference}}

    def draw(generator):
        subset = representative_subset(
            {"row": loss}, 120, strategy=strategy, seed=int(generator.integers(2**31)), **options[strategy]
        )
        return mean_interval(loss[subset.indices], design=subset.design())

    assert_covers(draw, loss.mean())


LOOKS = (0.05, 0.2, 1.0)


@pytest.mark.parametrize("look", [0, 1])
def test_prefix_of_the_difficulty_order(look):
    _, loss, _ = labelled_set()
    reference = loss * np.random.default_rng(1).lognormal(0, 0.4, 2500)

    def draw(generator):
        order = difficulty_order(reference, looks=LOOKS, seed=int(generator.integers(2**31)))
        rows = order.order[: order.looks[look] + 17]
        return order.estimate(ExampleResults(rows, loss[rows], np.ones(len(rows))))

    assert_covers(draw, loss.mean())


@pytest.mark.parametrize("score", ["loss", "right"])
def test_clusters_of_the_population(score):
    def draw(generator):
        clusters = np.repeat(np.arange(60), generator.integers(1, 12, 60))
        effect = generator.normal(0, 0.8, 60)[clusters]
        if score == "loss":
            values = np.exp(0.5 * (effect + generator.normal(0, 1, len(clusters))))
        else:
            values = (effect + generator.normal(0, 1, len(clusters)) < 0.8).astype(float)
        return mean_interval(values, design=SampleDesign.simple(len(clusters), clusters=clusters))

    normal_share = 0.5 * (1 + math.erf(0.8 / math.sqrt(2 * 1.64)))
    assert_covers(draw, math.exp(0.125 * 1.64) if score == "loss" else normal_share)


def test_clusters_in_a_sample_of_rows_for_the_population():
    def draw(generator):
        clusters = np.repeat(np.arange(80), 10)
        values = (generator.normal(0, 1, 80)[clusters] + generator.normal(0, 1, 800)) / 2
        rows = rows_of(generator, 800, 300)
        found = mean_interval(values[rows], design=SampleDesign.simple(300, 800, clusters=clusters[rows]))
        return mean_interval_of_population(found)

    assert_covers(draw, 0.0)


def mean_interval_of_population(found):
    """The interval for the population in the place of the set's, so that one helper counts both."""
    return type(found)(**{**found.__dict__, "ci_low": found.population_ci_low, "ci_high": found.population_ci_high})


def test_population_behind_a_stratified_subset():
    def draw(generator):
        labels = generator.choice(4, 1500, p=[0.5, 0.3, 0.15, 0.05])
        values = generator.gamma(1 + labels, 0.5)
        subset = representative_subset({"label": labels}, 600, seed=int(generator.integers(2**31)))
        return mean_interval_of_population(mean_interval(values[subset.indices], design=subset.design()))

    assert_covers(draw, 0.5 * (0.5 * 1 + 0.3 * 2 + 0.15 * 3 + 0.05 * 4))


def checkpoints(seed=0, n=3000):
    generator = np.random.default_rng(seed)
    hardness = generator.normal(0, 2, n)
    first, second = (1 / (1 + np.exp(hardness + generator.normal(shift, 0.5, n))) for shift in (-1.2, -1.0))
    return -np.log(first), -np.log(second), hardness


@pytest.mark.parametrize("n", [100, 400])
@pytest.mark.parametrize("design", ["random", "difficulty", "neyman"])
@pytest.mark.parametrize("score", ["loss", "right"])
def test_paired_difference(n, design, score):
    first, second, hardness = checkpoints()
    reference = np.log1p(np.exp(hardness))
    if score == "right":
        first, second = (first < math.log(2)).astype(float), (second < math.log(2)).astype(float)

    def draw(generator):
        subset = representative_subset(
            {"row": first},
            n,
            strategy="random" if design == "random" else "difficulty",
            reference_loss=None if design == "random" else reference,
            allocation="neyman" if design == "neyman" else "proportional",
            seed=int(generator.integers(2**31)),
        )
        return difference_interval(first[subset.indices], second[subset.indices], design=subset.design())

    assert_covers(draw, (first - second).mean())


def test_token_weighted_difference_and_anchored_level():
    first, second, _ = checkpoints()
    counts = np.ceil(np.random.default_rng(2).lognormal(3, 0.8, 3000))
    full = loss_interval(second * counts, counts)

    def draw(generator):
        rows = rows_of(generator, 3000, 200)
        sums = first[rows] * counts[rows], second[rows] * counts[rows]
        change = loss_difference_interval(*sums, counts[rows], n_total=3000)
        return anchored_estimate(change, full)

    assert_covers(draw, (first * counts).sum() / counts.sum())


def classified(generator, n, positives):
    true = (generator.random(n) < positives).astype(int)
    score = generator.normal(1.4 * true, 1)
    return score, (score > 0.9).astype(int), true


def many_classes(generator, n):
    true = generator.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    return np.where(generator.random(n) < 0.25, generator.integers(0, 4, n), true), true


BINARY = {
    "f1": lambda score, predicted, true, **options: f1_interval(predicted, true, **options),
    "mcc": lambda score, predicted, true, **options: mcc_interval(predicted, true, **options),
    "auc": lambda score, predicted, true, **options: auc_interval(score, true, **options),
}


@pytest.mark.parametrize(("n", "positives"), [(100, 0.3), (300, 0.15)])
@pytest.mark.parametrize("metric", list(BINARY))
def test_classification_of_the_set_and_the_population(metric, n, positives):
    columns = classified(np.random.default_rng(0), 4000, positives)
    exact = BINARY[metric](*columns).value

    def of_set(generator):
        rows = rows_of(generator, 4000, n)
        return BINARY[metric](*(column[rows] for column in columns), n_total=4000)

    assert_covers(of_set, exact)
    truth = BINARY[metric](*classified(np.random.default_rng(1), 400_000, positives)).value
    assert_covers(lambda generator: BINARY[metric](*classified(generator, n, positives)), truth)


@pytest.mark.parametrize("n", [100, 300])
@pytest.mark.parametrize("metric", ["micro", "macro", "mcc"])
def test_several_classes(metric, n):
    def found(predicted, true):
        return mcc_interval(predicted, true) if metric == "mcc" else f1_interval(predicted, true, average=metric)

    truth = found(*many_classes(np.random.default_rng(1), 400_000)).value
    assert_covers(lambda generator: found(*many_classes(generator, n)), truth)


def bleu_like(totals):
    """Corpus BLEU of matches (4), possible matches (4), length and reference length."""
    precision = np.log(totals[:4] / totals[4:8]).mean()
    return math.exp(precision + min(0.0, 1 - totals[9] / totals[8]))


def ngram_statistics(generator, n):
    length = generator.integers(6, 40, n)
    quality = generator.beta(5, 2, n)
    possible = np.stack([length - order for order in range(4)], axis=1)
    matches = generator.binomial(possible, quality[:, None] ** np.arange(1, 5))
    return np.column_stack([matches, possible, length, length + generator.integers(-3, 4, n)]).astype(float)


def chrf_like(totals):
    precision, recall = totals[0] / totals[1], totals[0] / totals[2]
    return 5 * precision * recall / (4 * precision + recall)


CORPUS = {
    "bleu": bleu_like,
    "chrf": lambda totals: chrf_like(totals[[0, 4, 9]]),
    "wer": lambda totals: (totals[4] - totals[0]) / totals[9],
}


@pytest.mark.parametrize("n", [100, 300])
@pytest.mark.parametrize("metric", list(CORPUS))
def test_corpus_metrics_of_the_set_and_the_population(metric, n):
    statistics, value = ngram_statistics(np.random.default_rng(0), 3000), CORPUS[metric]

    def of_set(generator):
        return smooth_interval(statistics[rows_of(generator, 3000, n)], value, n_total=3000)

    assert_covers(of_set, value(statistics.sum(axis=0)))
    truth = value(ngram_statistics(np.random.default_rng(1), 400_000).sum(axis=0))
    assert_covers(lambda generator: smooth_interval(ngram_statistics(generator, n), value), truth)


@pytest.mark.parametrize("metric", ["macro f1", "correlation"])
def test_jackknife_of_the_set(metric):
    generator = np.random.default_rng(0)
    predicted, true = many_classes(generator, 3000)
    x = generator.normal(size=3000)
    y = x + generator.normal(size=3000)

    def value(rows):
        if metric == "correlation":
            return float(np.corrcoef(x[rows], y[rows])[0, 1])
        cells = np.bincount(true[rows] * 4 + predicted[rows], minlength=16).reshape(4, 4)
        return float((2 * np.diag(cells) / (cells.sum(axis=0) + cells.sum(axis=1))).mean())

    def draw(generator):
        rows = rows_of(generator, 3000, 300)
        seed = int(generator.integers(2**31))
        return jackknife_interval(lambda kept: value(rows[kept]), 300, n_total=3000, seed=seed)

    assert_covers(draw, value(np.arange(3000)))


TRACES = Path(os.environ.get("TRAINPLUS_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "traces"


@functools.cache
def recorded_run(name):
    path = TRACES / f"{name}_s0.npz"
    if not path.exists():
        pytest.skip(f"the recorded runs are not there: {path}")
    with np.load(path) as run:
        return run["loss"].astype(np.float64), run["correct"].astype(np.float64)


@pytest.mark.parametrize("design", ["random", "proportional", "neyman"])
@pytest.mark.parametrize(("name", "step", "n"), [("ag_news", 40, 100), ("trec6", 33, 245)])
def test_recorded_runs(name, step, n, design):
    """Levels and differences of a checkpoint, its loss and accuracy, with the checkpoint three before as reference."""
    loss, right = recorded_run(name)
    reference = loss[step - 3]
    scores = {"loss": (loss[step], None), "right": (right[step], None)}
    scores |= {"loss change": (loss[step], loss[step - 3]), "right change": (right[step], right[step - 3])}
    hits = dict.fromkeys(scores, 0)
    for seed in range(DRAWS):
        subset = representative_subset(
            {"row": reference},
            n,
            strategy="random" if design == "random" else "difficulty",
            reference_loss=None if design == "random" else reference,
            allocation="neyman" if design == "neyman" else "proportional",
            seed=seed,
        )
        drawn, options = subset.indices, {"design": subset.design()}
        for score, (values, other) in scores.items():
            truth = values.mean() if other is None else (values - other).mean()
            if other is None:
                found = mean_interval(values[drawn], **options)
            else:
                found = difference_interval(values[drawn], other[drawn], **options)
            hits[score] += found.ci_low <= truth <= found.ci_high
    shares = {score: count / DRAWS for score, count in hits.items()}
    print(shares)
    assert all(0.92 <= share <= 0.98 for share in shares.values()), shares
