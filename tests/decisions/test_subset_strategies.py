"""Difficulty and diversity as strata."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from hf_trainplus import ExampleResults, representative_subset
from hf_trainplus.decisions.strategies.difficulty import (
    expected_loss_deviation,
    expected_score_deviation,
    loss_strata,
)
from hf_trainplus.decisions.strategies.kmeans import kmeans

LOSS = np.random.default_rng(0).lognormal(-1, 1.5, 1000)
ROWS = {"row": np.arange(1000)}


def test_difficulty_draws_each_decile_of_the_loss():
    subset = representative_subset(ROWS, 200, strategy="difficulty", reference_loss=LOSS)
    decile = np.argsort(np.argsort(LOSS)) // 100
    assert np.bincount(decile[subset.indices]).tolist() == [20] * 10
    np.testing.assert_array_equal(subset.strata, decile[subset.indices])


def test_difficulty_takes_values_a_column_or_results():
    order = np.random.default_rng(1).permutation(1000)
    counts = np.random.default_rng(2).integers(1, 9, 1000)
    results = ExampleResults(order, (LOSS * counts)[order], counts[order])
    expected = representative_subset(ROWS, 50, strategy="difficulty", reference_loss=LOSS)
    for source, dataset in ((results, ROWS), ("loss", pa.table({"loss": LOSS})), (LOSS.tolist(), ROWS)):
        found = representative_subset(dataset, 50, strategy="difficulty", reference_loss=source)
        np.testing.assert_array_equal(found.indices, expected.indices)


def test_small_subsets_get_fewer_strata():
    subset = representative_subset(ROWS, 9, strategy="difficulty", reference_loss=LOSS)
    assert np.bincount(subset.strata).min() >= 4
    assert "2 strata" in subset.method


def test_neyman_takes_hard_rows_densely_and_weighs_them_back():
    subset = representative_subset(ROWS, 200, strategy="difficulty", reference_loss=LOSS, allocation="neyman")
    easy, hard = subset.strata < 5, subset.strata >= 5
    assert easy.sum() < hard.sum() / 2
    assert subset.weights[easy].sum() == pytest.approx(500)
    assert subset.weights[hard].sum() == pytest.approx(500)


def test_losses_that_are_not_finite_are_the_hardest_stratum():
    loss = LOSS.copy()
    loss[:7] = [np.nan, np.inf, -np.inf, np.nan, np.nan, np.inf, np.nan]
    labels = loss_strata(loss, 4)
    assert labels.count == 5
    assert (labels.codes[:7] == 4).all()
    assert np.bincount(labels.codes).max() <= 249
    assert loss_strata([np.nan, np.nan], 3).codes.tolist() == [1, 1]
    with pytest.raises(ValueError, match="strata is 0"):
        loss_strata(loss, 0)


def test_a_cut_moves_to_a_clear_gap():
    loss = np.concatenate([np.linspace(0.3, 0.31, 480), np.linspace(1.2, 1.21, 520)])
    codes = loss_strata(loss, 4).codes
    assert np.bincount(codes).tolist() == [250, 230, 270, 250]
    assert set(codes[:480]) == {0, 1}


def test_losses_without_gaps_are_cut_evenly():
    assert np.bincount(loss_strata(LOSS, 10).codes).tolist() == [100] * 10
    assert np.bincount(loss_strata(np.zeros(90), 3).codes).tolist() == [30, 30, 30]


def test_expected_deviations():
    np.testing.assert_allclose(
        expected_loss_deviation([0.0, 1.0, -3.0, np.nan, np.inf]), [0.02, 1 - np.exp(-1), 0.02, 1, 1]
    )
    p = 1 - np.exp(-1)
    np.testing.assert_allclose(expected_score_deviation([0.0, 1.0, np.inf]), [0, np.sqrt(p * (1 - p)), 0])


def clustered_points(seed=0):
    generator = np.random.default_rng(seed)
    centres = generator.normal(0, 10, (5, 8))
    member = generator.choice(5, 600, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    return centres[member] + generator.normal(size=(600, 8)), member


def test_kmeans_finds_clusters_that_are_there():
    points, member = clustered_points()
    found = kmeans(points, 5, seed=0)
    pairs = {(a, b) for a, b in zip(member, found, strict=True)}
    assert len(pairs) == 5


def test_kmeans_bears_equal_rows_and_more_clusters_than_rows():
    assert kmeans(np.ones((6, 2)), 3, seed=0).tolist() == [0] * 6
    assert len(np.unique(kmeans(np.arange(3.0)[:, None], 9, seed=0))) == 3


def test_diversity_keeps_each_clusters_share():
    points, member = clustered_points()
    subset = representative_subset({"row": member}, 60, strategy="diversity", features=points)
    found = np.bincount(member[subset.indices], minlength=5)
    assert np.abs(found - 60 * np.bincount(member) / 600).max() <= 2
    assert subset.weights.sum() == pytest.approx(600)
    assert subset.method == "diversity, 10 clusters of the given features, proportional"


def test_diversity_takes_neyman_allocation():
    points, member = clustered_points()
    subset = representative_subset(
        {"row": member},
        80,
        strategy="diversity",
        features=points,
        allocation="neyman",
        reference_loss=np.where(member == 4, 3.0, 0.01),
    )
    drawn = np.bincount(member[subset.indices], minlength=5)
    assert drawn[4] > 80 * 2 * np.mean(member == 4)
    assert subset.weights.sum() == pytest.approx(600)


def test_diversity_reads_lengths_of_texts_and_lists():
    long = np.random.default_rng(0).random(400) < 0.1
    texts = ["word " * (200 if flag else 3) for flag in long]
    tokens = [[1] * (200 if flag else 3) for flag in long]
    for table, features in (
        ({"text": texts}, None),
        ({"input_ids": tokens}, None),
        ({"x": texts, "y": np.zeros(400)}, ["x", "y"]),
        ({"size": long.astype(float)}, "size"),
    ):
        subset = representative_subset(table, 40, strategy="diversity", features=features)
        assert abs(long[subset.indices].sum() - 40 * long.mean()) <= 1


def test_diversity_reads_columns_of_vectors():
    points, member = clustered_points()
    wanted = representative_subset({"row": member}, 60, strategy="diversity", features=points)
    for column in (
        points.tolist(),
        points,
        torch.tensor(points),
        pa.array(points.tolist(), pa.list_(pa.float64(), points.shape[1])),
        pa.array([np.zeros(points.shape[1]).tolist(), *points.tolist()])[1:],
    ):
        subset = representative_subset({"x": column}, 60, strategy="diversity", features="x")
        assert subset.indices.tolist() == wanted.indices.tolist()
        assert subset.method == "diversity, 10 clusters of x, proportional"
    with pytest.raises(ValueError, match="features hold NaN"):
        representative_subset({"x": [None, *points.tolist()]}, 60, strategy="diversity", features="x")


def test_diversity_takes_floats_of_unequal_length_by_length():
    long = np.random.default_rng(0).random(400) < 0.1
    sounds = [[0.5] * (200 if flag else 3) for flag in long]
    subset = representative_subset({"x": sounds}, 40, strategy="diversity", features="x")
    assert abs(long[subset.indices].sum() - 40 * long.mean()) <= 1


def test_diversity_names_what_it_lacks():
    with pytest.raises(ValueError, match="found none of length, input_ids, text, sentence in ..row..; give features="):
        representative_subset(ROWS, 10, strategy="diversity")
    with pytest.raises(ValueError, match="features have 3 rows and the dataset 1000"):
        representative_subset(ROWS, 10, strategy="diversity", features=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="features hold NaN"):
        representative_subset(ROWS, 10, strategy="diversity", features=np.full(1000, np.nan))
    with pytest.raises(ValueError, match="column 'x' mixes kinds"):
        representative_subset({"x": [1, "a"]}, 1, strategy="diversity", features="x")
