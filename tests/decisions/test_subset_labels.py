"""Labels of every kind: what is a class, what is missing, what is a set of labels, what is a continuous target."""

import datetime
import enum

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from hf_trainplus import representative_subset
from hf_trainplus.decisions.strategies.encoding import encode_labels
from hf_trainplus.decisions.strategies.label_values import LabelSets

CODES = np.random.default_rng(0).choice(3, 300, p=[0.6, 0.3, 0.1])


class Color(enum.Enum):
    RED = 1
    GREEN = 2
    BLUE = 3


KINDS = {
    "str": [["a", "b", "c"][code] for code in CODES],
    "int": CODES.tolist(),
    "numpy": CODES,
    "numpy scalars": list(CODES.astype(np.int16)),
    "uint8": CODES.astype(np.uint8),
    "numpy strings": np.array(["a", "b", "c"])[CODES],
    "numpy objects": np.array(["a", "b", "c"], dtype=object)[CODES],
    "float classes": CODES.astype(float),
    "float16": CODES.astype(np.float16),
    "half steps": CODES / 2,
    "tensors": [torch.tensor(code) for code in CODES],
    "dates": [datetime.date(2024, 1, 1 + code) for code in CODES],
    "enums": [list(Color)[code] for code in CODES],
    "mixed kinds": [[1, "1", True][code] for code in CODES],
    "bytes": [[b"a", b"b", b"c"][code] for code in CODES],
    "one label in a list": [[code] for code in CODES.tolist()],
    "column vector": CODES[:, None],
    "arrow dictionary": pa.array(np.array(["a", "b", "c"])[CODES]).dictionary_encode(),
    "pandas category": pd.Series(pd.Categorical(np.array(["a", "b", "c"])[CODES], categories=["c", "z", "b", "a"])),
    "pandas nullable": pd.Series(CODES, dtype="Int64"),
    "arrow views": pa.array(np.array(["a", "b", "c"])[CODES]).cast(pa.string_view()),
    "arrow dictionary of views": pa.DictionaryArray.from_arrays(
        CODES, pa.array(["a", "b", "c"]).cast(pa.string_view())
    ),
    "arrow runs": pc.run_end_encode(pa.array(CODES)),
    "missing None": [[None, "b", "c"][code] for code in CODES],
    "missing NaN": np.array([np.nan, 1.0, 2.0])[CODES],
    "missing in objects": [[float("nan"), 1, "x"][code] for code in CODES],
    "missing pandas in objects": [[pd.NA, 1, "x"][code] for code in CODES],
    "missing pandas": pd.Series(CODES, dtype="Int64").where(CODES > 0),
}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("size", [20, 63, 299])
def test_classes_of_every_kind_keep_their_shares(kind, size):
    subset = representative_subset({"label": KINDS[kind]}, size, seed=1)
    found = np.bincount(CODES[subset.indices], minlength=3)
    assert found.sum() == size
    assert np.abs(found - size * np.bincount(CODES) / 300).max() <= 1
    assert len(np.unique(subset.strata)) == 3
    for stratum in np.unique(subset.strata):
        assert len(np.unique(CODES[subset.indices[subset.strata == stratum]])) == 1


def test_a_tensor_is_read_as_the_array_that_it_holds():
    generator = np.random.default_rng(0)
    for values in (generator.normal(size=300), CODES, generator.integers(0, 2, (300, 4)), CODES[:, None]):
        wanted = representative_subset({"label": values}, 50)
        found = representative_subset({"label": torch.tensor(values)}, 50)
        assert (found.method, found.indices.tolist()) == (wanted.method, wanted.indices.tolist())
    halves = torch.tensor(CODES, dtype=torch.bfloat16, requires_grad=True)
    assert representative_subset({"label": halves}, 50).method == "stratified by 'label', 3 strata, proportional"


def test_bool_labels():
    flags = CODES > 0
    for column in (flags, flags.tolist(), pa.array(flags), pd.Series(flags), list(flags)):
        subset = representative_subset({"label": column}, 50)
        assert abs(flags[subset.indices].sum() - 50 * flags.mean()) <= 1


def test_class_label_feature():
    features = datasets.Features({"label": datasets.ClassLabel(names=["x", "y", "z"])})
    dataset = datasets.Dataset.from_dict({"label": CODES.tolist()}, features=features)
    subset = representative_subset(dataset, 60)
    assert np.bincount(CODES[subset.indices]).tolist() == np.round(60 * np.bincount(CODES) / 300).astype(int).tolist()


def test_missing_labels_are_a_class_of_their_own():
    labels = encode_labels(["b", None, "a", float("nan"), "b"])
    assert labels.codes.tolist() == [1, 2, 0, 2, 1]
    assert encode_labels([None, None]).codes.tolist() == [0, 0]
    assert encode_labels(np.array([np.nan, 1.0])).codes.tolist() == [1, 0]


def test_class_numbers_do_not_depend_on_the_order_of_rows():
    first = encode_labels(["b", "a", "c"])
    second = encode_labels(["c", "b", "a"])
    assert (first.codes.tolist(), second.codes.tolist()) == ([1, 0, 2], [2, 1, 0])


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_continuous_targets_are_binned(missing):
    generator = np.random.default_rng(0)
    target = generator.lognormal(size=1000)
    target[generator.random(1000) < missing] = np.nan
    subset = representative_subset({"label": target}, 100)
    deciles = np.nanquantile(target, np.arange(1, 10) / 10)
    bins = np.searchsorted(deciles, target, side="right") + 10 * np.isnan(target)
    found = np.bincount(bins[subset.indices], minlength=11)
    assert np.abs(found - 100 * np.bincount(bins, minlength=11) / 1000).max() <= 1.2
    assert "strata, proportional" in subset.method


def test_whole_floats_are_classes_unless_nearly_all_differ():
    assert encode_labels(np.repeat(np.arange(150.0), 20)).kind == "class"
    assert encode_labels(np.random.default_rng(0).integers(0, 10**6, 500).astype(float)).kind == "bin"
    assert encode_labels(np.arange(500)).count == 500


def sets_of(n, labels, seed):
    generator = np.random.default_rng(seed)
    chance = generator.dirichlet(np.full(labels, 0.7)) * 3
    flags = generator.random((n, labels)) < np.minimum(chance, 0.9)
    flags[:, 1] |= flags[:, 0] & (generator.random(n) < 0.7)
    return flags


def as_lists(flags, names):
    return [[names[place] for place in np.flatnonzero(row)] for row in flags]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("labels", [4, 20])
def test_label_sets_keep_each_label_within_a_row(seed, labels):
    flags = sets_of(2000, labels, seed)
    for size in (100, 401):
        subset = representative_subset({"label": flags.astype(int)}, size, seed=seed)
        assert len(np.unique(subset.indices)) == size
        error = flags[subset.indices].sum(axis=0) - size * flags.mean(axis=0)
        assert np.abs(error).max() <= 1
        np.testing.assert_allclose(subset.weights, 2000 / size)


def test_every_kind_of_label_set_is_the_same():
    flags = sets_of(400, 5, 3)
    names = ["p", "q", "r", "s", "t"]
    kinds = [
        flags,
        flags.astype(np.int8),
        flags.astype(float).tolist(),
        pa.array(flags.tolist()),
        pa.FixedSizeListArray.from_arrays(pa.array(flags.astype(np.int64).reshape(-1)), 5),
        as_lists(flags, names),
        as_lists(flags, range(5)),
        [set(entry) for entry in as_lists(flags, names)],
        pd.Series(as_lists(flags, names)),
        [torch.tensor(row) for row in flags.astype(np.float32)],
    ]
    encoded = [encode_labels(kind) for kind in kinds]
    for labels in encoded:
        assert isinstance(labels, LabelSets)
        np.testing.assert_array_equal(labels.rows, encoded[0].rows)
        np.testing.assert_array_equal(labels.labels, encoded[0].labels)


def test_missing_sets_are_their_own_group_and_empty_ones_are_not():
    labels = encode_labels([["a"], None, [], ["a", "b"], ["b", "b"]])
    assert list(zip(labels.rows.tolist(), labels.labels.tolist(), strict=True)) == [
        (0, 0), (1, 2), (3, 0), (3, 1), (4, 1),
    ]  # fmt: skip
    assert (labels.count, labels.n) == (3, 5)
    fixed = encode_labels(pa.array([[1, 0], None, [1, 1]], pa.list_(pa.int8(), 2)))
    assert list(zip(fixed.rows.tolist(), fixed.labels.tolist(), strict=True)) == [(0, 0), (1, 2), (2, 0), (2, 1)]


def test_ignored_targets_are_no_label():
    labels = encode_labels([[-100, 3, 5], [-100], [3, 3]])
    assert list(zip(labels.rows.tolist(), labels.labels.tolist(), strict=True)) == [(0, 1), (0, 2), (2, 1)]


def test_rows_without_labels_get_their_share():
    rows = [["a"]] * 100 + [[]] * 300
    subset = representative_subset({"label": [*rows, ["a", "b"]]}, 40)
    assert abs((subset.indices >= 100).sum() - 30) <= 1


def test_more_labels_than_rows_asked_for():
    flags = np.random.default_rng(0).random((200, 60)) < 0.05
    subset = representative_subset({"label": flags}, 10)
    error = np.abs(flags[subset.indices].sum(axis=0) - 10 * flags.mean(axis=0))
    assert len(subset) == 10
    assert error.max() <= 1.5


def test_a_rare_label_is_drawn_as_often_as_it_should():
    flags = np.zeros((300, 3), int)
    flags[:150, 0] = flags[100:, 1] = 1
    flags[:3, 2] = 1
    drawn = [(representative_subset({"label": flags}, 30, seed=seed).indices < 3).sum() for seed in range(800)]
    assert np.mean(drawn) == pytest.approx(0.3, abs=0.06)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[[1], [2]], [[3]]], "lists of list<.*>; allowed are lists of names or class numbers"),
        ([[0.2, 0.8], [0.5, 0.5]], "lists of fractions; turn scores into labels first"),
        (np.zeros((3, 2, 2)), r"shape \(3, 2, 2\); allowed are one or two dimensions"),
        ([{"a": 1}, {"a": 2}], "name one of its fields"),
        ([{"a": 1}, 3], "labels must be hashable"),
    ],
)
def test_what_is_no_label_is_refused(column, message):
    with pytest.raises(TypeError, match=message):
        representative_subset({"label": column}, 1, label_column="label")


def test_label_sets_take_proportional_allocation_only():
    with pytest.raises(ValueError, match="allocation is 'equal' and rows have several labels"):
        representative_subset({"label": [["a", "b"], ["a"]]}, 1, allocation="equal")
