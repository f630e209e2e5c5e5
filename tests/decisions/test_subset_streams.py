"""Streams: a prefix that does not claim to be the whole, and reservoirs."""

import itertools

import datasets
import numpy as np
import pandas as pd
import pytest
import torch

from hf_trainplus import representative_subset
from hf_trainplus.decisions.estimate import mean_interval
from hf_trainplus.decisions.subset import stream_prefix, stream_sample


def rows(n=1000, classes=4):
    return [{"label": (i * i) % classes, "position": i} for i in range(n)]


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, entries):
        self.entries = entries

    def __iter__(self):
        return iter(self.entries)

    def __len__(self):
        return len(self.entries)


@pytest.mark.parametrize("strategy", ["stratified", "random"])
def test_every_kind_of_stream_gives_the_same_rows(strategy):
    entries = rows()
    streams = [
        iter(entries),
        (row for row in entries),
        Stream(entries),
        datasets.Dataset.from_list(entries).to_iterable_dataset(),
    ]
    found = [representative_subset(stream, 40, strategy=strategy, seed=2) for stream in streams]
    for subset in found:
        np.testing.assert_array_equal(subset.indices, found[0].indices)
        assert [row["position"] for row in subset.rows] == subset.indices.tolist()
        assert subset.n_total == 1000
        assert subset.weights.sum() == pytest.approx(1000)
    assert found[0].method == (
        "stream stratified by 'label'" if strategy == "stratified" else "random rows of a stream"
    )


def test_shares_are_kept_in_one_pass():
    entries = rows(3000, 7)
    labels = np.array([row["label"] for row in entries])
    subset = representative_subset(iter(entries), 100)
    found = np.bincount(labels[subset.indices], minlength=7)
    assert np.abs(found - 100 * np.bincount(labels, minlength=7) / 3000).max() <= 1


def test_the_reservoir_takes_every_row_as_often():
    drawn = np.zeros(30)
    for seed in range(3000):
        drawn[stream_sample(iter(range(30)), 6, seed=seed).indices] += 1
    assert drawn.sum() == 18_000
    # binomial with p = 0.2: standard deviation 22
    assert np.abs(drawn - 600).max() < 4 * 22


def test_an_endless_stream_is_read_as_far_as_stated():
    subset = representative_subset(({"label": i % 2} for i in itertools.count()), 10, stream_rows=500)
    assert subset.n_total == 500
    assert subset.indices.max() < 500


def test_a_prefix_is_never_the_whole_unless_stated():
    subset = representative_subset(({"x": i} for i in itertools.count()), 50, strategy="prefix")
    assert [row["x"] for row in subset.rows] == list(range(50))
    assert subset.n_total is None
    found = mean_interval(np.arange(50.0), design=subset.design())
    assert (found.exact, found.n_total, found.n) == (False, None, 50)
    assert found.standard_error == pytest.approx(np.arange(50.0).std(ddof=1) / np.sqrt(50))
    assert found.population_standard_error == pytest.approx(found.standard_error)
    assert str(found).endswith("50 of a stream's examples)")

    right = mean_interval(np.ones(50), design=subset.design())
    assert right.ci_low < 0.95


def test_a_prefix_of_a_stream_of_stated_length():
    assert stream_prefix(range(10), 5, stream_rows=10).design().n_total == 10
    assert not stream_prefix(range(10), 5, stream_rows=10).design().exact
    assert stream_prefix(range(10), 10, stream_rows=10).design().exact


def test_labels_that_are_lists_are_left_alone_unless_named():
    entries = [{"labels": [1, 2, i]} for i in range(50)]
    assert representative_subset(iter(entries), 5).method == "random rows of a stream"
    with pytest.raises(TypeError, match="column 'labels' of the stream holds lists; allowed are plain classes"):
        representative_subset(iter(entries), 5, label_column="labels")


def test_missing_labels_and_kinds_are_classes():
    entries = [{"label": label} for label in [None, float("nan"), pd.NA, 1, True, "1"] * 20]
    subset = representative_subset(iter(entries), 12)
    assert sorted(np.bincount(subset.strata).tolist()) == [2, 2, 2, 6]


def test_a_target_of_fractions_is_no_class_unless_named():
    def entries():
        return ({"label": 0.5 + i} for i in range(11_000))

    assert representative_subset(entries(), 5).method == "random rows of a stream"
    with pytest.raises(TypeError, match="over 10000 classes"):
        representative_subset(entries(), 5, label_column="label")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"allocation": "neyman", "reference_loss": np.ones(9)}, "allocation is 'neyman' and the dataset a stream"),
        ({"reference_loss": np.ones(9)}, "reference_loss= was given and the dataset is a stream"),
        ({"features": ["text"]}, "features= was given and the dataset is a stream"),
        ({"stream_rows": -5}, "stream_rows is -5; allowed are whole numbers >= 1"),
        ({"stream_rows": "5"}, "stream_rows is '5'; allowed are whole numbers >= 1"),
    ],
)
def test_options_that_a_stream_has_no_use_for_are_not_passed_over(options, message):
    with pytest.raises(ValueError, match=message):
        representative_subset(iter([{"label": 1}] * 9), 3, **options)


def test_wrong_use_is_named():
    with pytest.raises(ValueError, match="stream ended after 3 rows and size is 5; ask for 3 at most"):
        representative_subset(iter(range(3)), 5, strategy="prefix")
    with pytest.raises(ValueError, match="stream had 3 rows and size is 5"):
        representative_subset(iter(range(3)), 5, strategy="random")
    with pytest.raises(ValueError, match="the stream had 0 rows"):
        representative_subset(iter([]), 5)
    with pytest.raises(ValueError, match="size is 0.1 and a stream has no known length"):
        representative_subset(iter(range(3)), 0.1)
    with pytest.raises(ValueError, match="strategy is 'difficulty' and the dataset a stream; allowed are 'stratified'"):
        representative_subset(iter(range(3)), 1, strategy="difficulty")
    with pytest.raises(ValueError, match="stream_rows=2 and size=3"):
        stream_prefix(range(9), 3, stream_rows=2)
    with pytest.raises(TypeError, match="over 10000 classes; use strategy='random'"):
        representative_subset(({"label": i} for i in range(20_000)), 5)
