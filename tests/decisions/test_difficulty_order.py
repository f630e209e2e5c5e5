"""Easy first, then hard: weights, looks, and what a prefix may claim."""

import numpy as np
import pytest

from hf_trainplus import ExampleResults
from hf_trainplus.decisions.difficulty_order import difficulty_order

N = 4000
LOSS = np.random.default_rng(0).lognormal(-2, 2, N)


def results(order, size, values):
    rows = order.order[:size]
    return ExampleResults(rows, values[rows], np.ones(size), scores={"right": values[rows] < 0.5})


def test_every_row_is_there_once():
    found = difficulty_order(LOSS)
    assert len(found) == N
    np.testing.assert_array_equal(np.sort(found.order), np.arange(N))
    assert found.looks[-1] == N
    assert list(found.looks) == sorted(set(found.looks))


def test_hard_rows_are_taken_densely_and_easy_ones_thinly():
    found = difficulty_order(LOSS)
    middle = found.order[: found.looks[4]]
    taken = np.bincount(found.strata[middle], minlength=10) / np.bincount(found.strata)
    assert taken[-1] > 3 * taken[0] > 0
    assert bool((np.diff(taken) >= -1e-9).all())


def test_within_a_look_easy_rows_come_first():
    found = difficulty_order(LOSS)
    for start, end in zip((0, *found.looks), found.looks, strict=False):
        assert bool((np.diff(found.strata[found.order[start:end]]) >= 0).all())


def test_prefixes_are_nested():
    found = difficulty_order(LOSS)
    previous = set()
    for size in found.looks:
        rows = set(found.prefix(size).indices.tolist())
        assert previous <= rows
        previous = rows


@pytest.mark.parametrize("size", [100, 137, 500, 3999])
def test_a_prefix_is_weighted_by_stratum_and_is_not_the_whole(size):
    found = difficulty_order(LOSS)
    subset = found.prefix(size)
    np.testing.assert_allclose(np.bincount(subset.strata, weights=subset.weights), np.bincount(found.strata))
    value = found.estimate(results(found, size, LOSS))
    assert not value.exact
    assert (value.n, value.n_total) == (size, N)
    assert value.standard_error > 0


def test_all_rows_are_exact():
    found = difficulty_order(LOSS)
    value = found.estimate(results(found, N, LOSS))
    assert value.exact
    assert value.value == pytest.approx(LOSS.mean())


def test_an_easy_prefix_is_refused():
    found = difficulty_order(LOSS)
    with pytest.raises(
        ValueError, match="size is 40; allowed are whole numbers from 100, the smallest prefix .* to 4000"
    ):
        found.prefix(40)
    with pytest.raises(ValueError, match="size is 4001"):
        found.prefix(4001)


def test_results_that_are_not_the_prefix_are_refused():
    found = difficulty_order(LOSS)
    rows = found.order[-200:]
    with pytest.raises(ValueError, match="rows were not drawn"):
        found.estimate(ExampleResults(rows, LOSS[rows], np.ones(200)))


def test_prefix_estimates_are_unbiased_where_the_plain_mean_is_not():
    truth = LOSS * np.random.default_rng(1).lognormal(0, 0.3, N)
    weighted, plain = [], []
    for seed in range(150):
        found = difficulty_order(LOSS, seed=seed)
        table = results(found, found.looks[3], truth)
        weighted.append(found.estimate(table).value)
        plain.append(table.loss)
    error = np.std(weighted) / np.sqrt(len(weighted))
    assert abs(np.mean(weighted) - truth.mean()) < 4 * error
    assert np.mean(plain) > 1.5 * truth.mean()


def test_the_order_is_fixed_by_its_arguments():
    np.testing.assert_array_equal(difficulty_order(LOSS, seed=3).order, difficulty_order(LOSS, seed=3).order)
    assert not np.array_equal(difficulty_order(LOSS, seed=3).order, difficulty_order(LOSS, seed=4).order)


def test_small_sets_and_bad_losses():
    tiny = difficulty_order([0.1, np.nan, np.inf, 2.0], strata=2)
    assert tiny.looks == (4,)
    assert tiny.strata.tolist() == [0, 2, 2, 1]
    assert difficulty_order(LOSS, strata=60).looks[0] >= 240


def test_score_orders_watch_the_undecided_rows():
    loss = np.repeat([0.001, np.log(2), 9.0], 1000)
    found = difficulty_order(loss, expected="score", strata=3)
    taken = np.bincount(found.strata[found.order[: found.looks[2]]])
    assert taken[1] > 3 * max(taken[0], taken[2])


@pytest.mark.parametrize("looks", [(), (0.1, 0.5), (0.5, 0.1, 1.0), (0.0, 1.0), (0.5, 0.5, 1.0)])
def test_looks_must_ascend_to_the_whole(looks):
    with pytest.raises(ValueError, match="allowed are ascending shares above 0 that end in 1.0"):
        difficulty_order(LOSS, looks=looks)


def test_unknown_expectation_is_named():
    with pytest.raises(ValueError, match="expected is 'bleu'; allowed are 'loss' and 'score'"):
        difficulty_order(LOSS, expected="bleu")


def test_results_of_a_reference_are_taken_as_they_are():
    loss = np.random.default_rng(3).gamma(0.5, 1.0, 300)
    counts = np.random.default_rng(4).integers(1, 5, 300)
    shuffled = np.random.default_rng(5).permutation(300)
    results = ExampleResults(shuffled, (loss * counts)[shuffled], counts[shuffled])
    np.testing.assert_array_equal(difficulty_order(results).order, difficulty_order(loss).order)
    with pytest.raises(ValueError, match="the reference results have 299 rows and are not those of all 299"):
        difficulty_order(results.take(results.index != 7))


@pytest.mark.parametrize("losses", [[], np.ones((5, 2)), 1.0])
def test_there_is_one_loss_a_row(losses):
    with pytest.raises(ValueError, match=r"reference_loss has shape .*give one loss a row"):
        difficulty_order(losses)


def test_a_prefix_has_whole_rows():
    with pytest.raises(ValueError, match="size is 150.5; allowed are whole numbers"):
        difficulty_order(np.arange(500.0)).prefix(150.5)
