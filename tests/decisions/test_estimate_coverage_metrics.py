"""Nominal 95 % intervals must hold the truth in 92 to 98 % of 500 seeded draws, for the set and for the population.

Each cell draws samples of a known set (``set``) or whole sets of a known population (``population``) and counts how
often the interval holds the value that the set or the population really has. Here: differences, classification, corpus metrics and the jackknife.
"""

import math

import numpy as np
import pytest

from hf_trainplus import representative_subset
from hf_trainplus.decisions.estimate import (
    anchored_estimate,
    auc_interval,
    difference_interval,
    f1_interval,
    jackknife_interval,
    loss_difference_interval,
    loss_interval,
    mcc_interval,
    smooth_interval,
)
from tests.support.interval_coverage import assert_covers, rows_of


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
