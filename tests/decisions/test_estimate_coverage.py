"""Nominal 95 % intervals must hold the truth in 92 to 98 % of 500 seeded draws, for the set and for the population.

Each cell draws samples of a known set (``set``) or whole sets of a known population (``population``) and counts how
often the interval holds the value that the set or the population really has. Here: means, losses, clusters and subsets.
"""

import math

import numpy as np
import pytest

from hf_trainplus import ExampleResults, representative_subset
from hf_trainplus.decisions.difficulty_order import difficulty_order
from hf_trainplus.decisions.estimate import (
    SampleDesign,
    estimate,
    loss_interval,
    mean_interval,
)
from tests.support.interval_coverage import assert_covers, rows_of

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
