"""Shares, rounding and rare classes: who gets how many rows, and whether the weights make up for it."""

import numpy as np
import pytest

from hf_trainplus import representative_subset
from hf_trainplus.decisions.strategies.allocation import largest_remainder, pooled, quotas
from hf_trainplus.decisions.strategies.drawing import plan_rows


def reference_largest_remainder(sizes, size):
    exact = size * sizes / sizes.sum()
    rows = np.floor(exact).astype(int)
    for place in np.argsort(-(exact - rows), kind="stable")[: size - rows.sum()]:
        rows[place] += 1
    return rows


def dataset(sizes):
    return {"label": np.repeat(np.arange(len(sizes)), sizes)}


def counts(subset, sizes):
    return np.bincount(dataset(sizes)["label"][subset.indices], minlength=len(sizes))


@pytest.mark.parametrize("seed", range(20))
def test_proportional_is_largest_remainder_where_each_class_is_worth_a_row(seed):
    generator = np.random.default_rng(seed)
    sizes = generator.integers(20, 400, generator.integers(1, 9))
    size = int(generator.integers(len(sizes) * 20, sizes.sum() + 1)) if sizes.sum() > len(sizes) * 20 else sizes.sum()
    subset = representative_subset(dataset(sizes), int(size))
    np.testing.assert_array_equal(counts(subset, sizes), reference_largest_remainder(sizes, size))


@pytest.mark.parametrize("seed", range(60))
def test_every_class_is_within_one_row_of_its_share(seed):
    generator = np.random.default_rng(seed)
    # long tails, single members and more classes than rows
    sizes = 1 + generator.geometric(0.3, generator.integers(1, 80)) ** generator.integers(1, 5)
    size = int(generator.integers(1, sizes.sum() + 1))
    subset = representative_subset(dataset(sizes), size, seed=seed)
    found = counts(subset, sizes)
    assert found.sum() == size
    assert np.abs(found - size * sizes / sizes.sum()).max() <= 1 + 1e-9
    assert subset.weights.sum() == pytest.approx(sizes.sum())


def test_more_classes_than_rows():
    sizes = np.ones(500, int)
    subset = representative_subset(dataset(sizes), 20)
    assert len(subset) == 20
    np.testing.assert_allclose(subset.weights, 25.0)


@pytest.mark.parametrize(
    ("sizes", "size", "allocation"),
    [
        ([600, 390, 7, 2, 1], 40, "proportional"),
        ([600, 390, 7, 2, 1], 40, "equal"),
        ([500, 3, 3, 2, 1, 1], 25, "proportional"),
        ([40] * 5 + [1] * 60, 13, "proportional"),
        ([40] * 5 + [1] * 60, 13, "equal"),
        ([300, 200, 100], 30, "equal"),
    ],
)
def test_weighted_estimates_are_unbiased(sizes, size, allocation):
    sizes = np.array(sizes)
    labels = dataset(sizes)["label"]
    values = labels**2 + np.random.default_rng(0).random(len(labels))
    found = []
    for seed in range(600):
        subset = representative_subset({"label": labels}, size, allocation=allocation, seed=seed)
        found.append(subset.design().mean(values[subset.indices]))
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - values.mean()) < 4 * error + 1e-12


@pytest.mark.parametrize(("sizes", "size"), [([300, 60] + [2] * 20, 10), ([150] + [1] * 50, 20)])
@pytest.mark.parametrize("allocation", ["equal", "neyman"])
def test_fewer_rows_than_classes_are_unbiased_under_every_allocation(sizes, size, allocation):
    labels = dataset(sizes)["label"]
    values = np.where(labels == 0, 0.05, 3.0) + np.random.default_rng(0).random(len(labels))
    found, drawn = [], np.zeros(len(labels))
    for seed in range(800):
        subset = representative_subset({"label": labels}, size, allocation=allocation, seed=seed, reference_loss=values)
        assert subset.weights.sum() == pytest.approx(len(labels))
        drawn[subset.indices] += subset.weights
        found.append(subset.design().mean(values[subset.indices]))
    assert abs(np.mean(found) - values.mean()) < 4 * np.std(found) / np.sqrt(len(found))
    stood_for = np.bincount(labels, weights=drawn / len(found))[0]
    assert stood_for == pytest.approx(sizes[0], rel=0.1)


def test_unequal_allocation_without_weights_would_be_biased():
    labels = dataset([900, 100])["label"]
    subset = representative_subset({"label": labels}, 100, allocation="equal")
    assert labels[subset.indices].mean() == 0.5
    assert subset.design().mean(labels[subset.indices]) == pytest.approx(0.1)


def test_rare_classes_are_drawn_as_often_as_they_should():
    sizes = np.array([970, 10, 10, 5, 5])
    stood_for = np.zeros(5)
    for seed in range(1500):
        subset = representative_subset(dataset(sizes), 50, seed=seed)
        stood_for += np.bincount(dataset(sizes)["label"][subset.indices], weights=subset.weights, minlength=5) / 1500
    np.testing.assert_allclose(stood_for, sizes, rtol=0.25)
    assert stood_for.sum() == pytest.approx(1000)


def test_equal_gives_every_class_the_same_or_all_it_has():
    subset = representative_subset(dataset([100, 100, 3]), 33, allocation="equal")
    assert counts(subset, [100, 100, 3]).tolist() == [15, 15, 3]
    assert np.unique(subset.weights[subset.strata == 2]).tolist() == [1.0]


def test_neyman_draws_where_rows_vary():
    labels = dataset([500, 500])["label"]
    loss = np.where(labels == 0, 0.01, 2.0)
    subset = representative_subset({"label": labels}, 100, allocation="neyman", reference_loss=loss)
    found = np.bincount(labels[subset.indices])
    # expected deviations 0.02, floored at 0.15 of 1 - exp(-2)
    assert found.tolist() == [13, 87]
    np.testing.assert_allclose(np.bincount(labels[subset.indices], weights=subset.weights), [500, 500])


@pytest.mark.parametrize("allocation", ["proportional", "equal", "neyman"])
@pytest.mark.parametrize("seed", range(10))
def test_quotas_add_up_and_fit_their_strata(allocation, seed):
    generator = np.random.default_rng(seed)
    sizes = generator.integers(0, 50, 12)
    deviation = generator.random(12) * (generator.random(12) > 0.3)
    for size in (0, 1, int(sizes.sum()) // 2, int(sizes.sum())):
        found = quotas(sizes, size, allocation, deviation)
        assert found.sum() == pytest.approx(size, abs=1e-6)
        assert bool((found <= sizes + 1e-6).all())
        assert bool((found >= 0).all())


def test_neyman_is_proportional_to_size_times_deviation_between_its_limits():
    found = quotas(np.array([1000, 1000, 1000, 6]), 300, "neyman", np.array([1.0, 0.5, 0.0, 1.0]))
    assert found[0] / found[1] == pytest.approx(2.0)
    assert found[0] / found[2] == pytest.approx(1 / 0.15)
    assert found[3] == 4.0


def test_neyman_without_any_expected_deviation_is_proportional():
    np.testing.assert_allclose(quotas(np.array([30, 10]), 20, "neyman", np.zeros(2)), [15, 5])


def test_a_host_joins_rare_classes_that_are_worth_less_than_a_row():
    sizes = np.array([60, 37, 2, 1])
    pool, rows = pooled(quotas(sizes, 10), sizes)
    assert (sorted(pool.tolist()), rows) == ([1, 2, 3], 4)
    assert pooled(np.array([2.0, 3.0]), np.array([4, 5]))[1] == 0


def test_a_plan_draws_each_class_at_most_whole():
    for seed in range(200):
        generator = np.random.default_rng(seed)
        sizes = generator.integers(1, 6, 30)
        size = int(generator.integers(1, sizes.sum() + 1))
        plan = plan_rows(sizes, size, generator, allocation="equal")
        assert plan.counts.sum() == size
        assert bool((plan.counts <= sizes).all())


def test_largest_remainder_gives_ties_to_the_first():
    assert largest_remainder(np.array([0.5, 0.5, 1.0]), 2).tolist() == [1, 0, 1]
