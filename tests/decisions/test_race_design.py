from __future__ import annotations

import numpy as np
import pytest

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.design import Design, look_depths, nested_design
from hf_trainplus.decisions.racing.metrics import LossMetric, ScoreMetric
from hf_trainplus.decisions.racing.strata import Strata, expected_squares, strata_of_labels, strata_of_reference
from hf_trainplus.decisions.racing.volatility import Volatility
from hf_trainplus.results import ExampleResults

ERROR = ScoreMetric("error", greater_is_better=False, lower=0.0, upper=1.0)


def strata(sizes=(600, 300, 100), scale=(1.0, 2.0, 4.0), gainable=None):
    return Strata(np.repeat(np.arange(len(sizes)), sizes), np.array(scale), gainable)


def full_column(loss, error):
    column = Column.empty(len(loss), 1)
    table = ExampleResults(np.arange(len(loss)), loss, np.ones(len(loss)), scores={"error": error})
    column.add(table, ERROR.columns(table))
    return column


def test_every_row_is_read_once():
    assert sorted(nested_design(strata(), seed=0).order.tolist()) == list(range(1000))


def test_prefixes_are_nested_and_their_sizes_do_not_depend_on_the_seed():
    first, second = nested_design(strata(), seed=0), nested_design(strata(), seed=1)
    assert not np.array_equal(first.order, second.order)
    for depth in (20, 57, 300, 999):
        np.testing.assert_array_equal(first.counts(depth), second.counts(depth))
        assert set(first.order[:20]) <= set(first.order[:depth])


@pytest.mark.parametrize("depth", [40, 100, 200])
def test_allocation_follows_size_times_scale(depth):
    counts = nested_design(strata(), seed=0).counts(depth)
    weights = np.array([600 * 1, 300 * 2, 100 * 4])
    np.testing.assert_allclose(counts, depth * weights / weights.sum(), atol=3)


def test_a_fully_read_stratum_leaves_its_share_to_the_others():
    counts = nested_design(strata(), seed=0).counts(700)
    assert counts[2] == 100
    np.testing.assert_allclose(counts[:2], [300, 300], atol=5)


def test_thin_strata_keep_a_floor_and_a_few_rows_from_the_start():
    design = nested_design(strata(scale=(0.0, 1.0, 1.0)), seed=0)
    assert design.counts(12).min() == 4
    rate = design.counts(200) / design.sizes
    assert rate[0] == pytest.approx(0.15 * rate[1], rel=0.1)


def test_rows_of_a_stratum_are_a_simple_random_sample():
    hits = np.zeros(1000)
    for seed in range(400):
        hits[nested_design(strata(), seed=seed).order[:200]] += 1
    for stratum in range(3):
        rows = strata().stratum == stratum
        rate = hits[rows].mean() / 400
        # binomial spread of 400 draws a row
        assert hits[rows].std() == pytest.approx(np.sqrt(400 * rate * (1 - rate)), rel=0.25)


def test_equal_rates_ignore_the_scale():
    counts = nested_design(strata(), seed=0, equal_rates=True).counts(100)
    np.testing.assert_allclose(counts, [60, 30, 10], atol=1)


def test_gainable_rows_are_complete_at_the_milestone_and_losses_come_densest_first():
    gainable = np.array([False, True, False])
    design = nested_design(strata(scale=(0.3, 1.0, 0.6), gainable=gainable), seed=0)
    assert design.counts(design.milestone)[1] == 300
    assert design.counts(design.milestone - 1)[1] == 299
    after = design.ordered_stratum[design.milestone :]
    assert after[: np.count_nonzero(after == 2)].tolist() == [2] * np.count_nonzero(after == 2)
    assert design.losses_met[-1] == pytest.approx(1.0)
    assert (np.diff(design.losses_met) >= 0).all()


def test_a_design_without_gainable_rows_has_no_milestone():
    assert nested_design(strata(), seed=0).milestone is None


def test_designs_survive_their_state():
    design = nested_design(strata(gainable=np.array([True, False, False])), seed=3, number=7)
    again = Design.from_state(design.state_dict())
    for name in ("order", "stratum", "scale", "gainable", "number"):
        np.testing.assert_array_equal(getattr(again, name), getattr(design, name))
    assert again.rows_hash(100) == design.rows_hash(100) != design.rows_hash(101)


@pytest.mark.parametrize("chunk", [1, 8, 48])
def test_looks_are_multiples_of_the_chunk_and_end_with_all_rows(chunk):
    depths = look_depths((0.02, 0.1, 0.5, 1.0), 5001, first_rows=100, chunk=chunk)
    assert depths[-1] == 5001
    assert (depths[:-1] % chunk == 0).all()
    assert depths[0] >= 100
    assert (np.diff(depths) > 0).all()


def test_looks_closer_than_the_first_rows_are_merged():
    assert look_depths((0.01, 0.02, 1.0), 1000, first_rows=100, chunk=1).tolist() == [100, 1000]


def test_labels_are_strata_until_there_are_too_many():
    few = strata_of_labels(np.array([5, 5, 9, 5]), 4)
    assert few.stratum.tolist() == [0, 0, 1, 0]
    assert strata_of_labels(np.arange(100), 100).stratum.max() == 0
    assert strata_of_labels(None, 3).stratum.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="one label a row"):
        strata_of_labels(np.arange(3), 4)


def test_strata_keep_wrong_and_right_rows_apart():
    rng = np.random.default_rng(0)
    loss = rng.exponential(0.7, 2000)
    error = (loss > 0.7) * 1.0
    found = strata_of_reference(full_column(loss, error), Volatility.empty(2000), ERROR, 12)
    for stratum in range(len(found.scale)):
        assert set(error[found.stratum == stratum]) == {1.0 if found.gainable[stratum] else 0.0}
    assert 8 <= len(found.scale) <= 16


def test_rows_that_moved_are_expected_to_move_again():
    rng = np.random.default_rng(1)
    loss = rng.exponential(0.3, 1000)
    column = full_column(loss, (loss > 0.7) * 1.0)
    restless = np.flatnonzero(loss < 0.1)[:20]
    past = Volatility.empty(1000)
    for _ in range(6):
        error = (loss > 0.7) * 1.0
        error[restless] = 1.0
        other = full_column(loss, error)
        past = past.learn(other, error)
    base = column.values[:, 0]
    before = expected_squares(column, base, Volatility.empty(1000), ERROR)
    after = expected_squares(column, base, past, ERROR)
    assert (after[restless] > 5 * before[restless]).all()
    found = strata_of_reference(column, past, ERROR, 12)
    assert (found.scale[found.stratum[restless]] >= np.quantile(found.scale[found.stratum], 0.9)).all()


@pytest.mark.parametrize("metric", [LossMetric(), ERROR])
def test_expected_squares_are_positive_even_when_nothing_ever_moved(metric):
    loss = np.full(500, 0.2)
    column = Column.empty(500, 2 if isinstance(metric, LossMetric) else 1)
    table = ExampleResults(np.arange(500), loss, np.ones(500), scores={"error": np.zeros(500)})
    column.add(table, metric.columns(table))
    past = Volatility.empty(500).learn(column, metric.rows(column.values, column.means))
    assert (expected_squares(column, metric.rows(column.values, column.means), past, metric) > 0).all()


def test_volatility_is_the_faded_distance_to_a_base():
    past = Volatility.empty(2)
    column = full_column(np.zeros(2), np.array([1.0, 0.0]))
    past = past.learn(column, np.array([3.0, 1.0])).learn(column, np.array([5.0, 1.0]))
    np.testing.assert_allclose(past.distance(np.array([1.0, 1.0])), [0.9 * 4 + 16, 0.0], atol=1e-12)
