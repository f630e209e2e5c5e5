"""representative_subset: the contract that holds for every strategy and every kind of dataset."""

import hashlib
import os
import subprocess
import sys

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from hf_trainplus import ExampleResults, representative_subset
from hf_trainplus.decisions.subset import RandomStrategy, StratifiedStrategy, Subset

CLASSES = ["a", "b", "c"]


def labels(n=300, seed=0):
    return np.array(CLASSES)[np.random.default_rng(seed).choice(3, n, p=[0.6, 0.3, 0.1])].tolist()


class Rows(torch.utils.data.Dataset):
    def __init__(self, values, kind=dict):
        self.values, self.kind, self.read = values, kind, []

    def __len__(self):
        return len(self.values)

    def __getitem__(self, position):
        self.read.append(position)
        value = self.values[position]
        return {"label": value} if self.kind is dict else (position, value)


def every_kind(values):
    rows = [{"label": value, "text": str(i)} for i, value in enumerate(values)]
    table = pa.Table.from_pylist(rows)
    return {
        "datasets": datasets.Dataset.from_list(rows),
        "datasets with indices": datasets.Dataset.from_list(rows[::-1]).select(range(len(rows) - 1, -1, -1)),
        "arrow table": table,
        "arrow chunks": pa.concat_tables([table[:7], table[7:]]),
        "record batch": table.to_batches()[0],
        "pandas": pd.DataFrame(rows),
        "pandas shuffled index": pd.DataFrame(rows, index=np.random.default_rng(1).permutation(len(rows))),
        "rows": rows,
        "mapping": {"label": values},
        "torch": Rows(values),
    }


@pytest.mark.parametrize("kind", list(every_kind(["a", "b"])))
def test_every_kind_of_dataset_gives_the_same_rows(kind):
    values = labels()
    subset = representative_subset(every_kind(values)[kind], 50, label_column="label", seed=3)
    reference = representative_subset({"label": values}, 50, label_column="label", seed=3)
    np.testing.assert_array_equal(subset.indices, reference.indices)
    np.testing.assert_array_equal(subset.weights, reference.weights)
    np.testing.assert_array_equal(subset.strata, reference.strata)


def test_rows_that_are_tuples_are_read_by_position():
    values = labels()
    subset = representative_subset(Rows(values, tuple), 50, label_column=1, seed=3)
    np.testing.assert_array_equal(subset.indices, representative_subset({"label": values}, 50, seed=3).indices)
    with pytest.raises(ValueError, match=r"row that is a tuple of 2; name its position, e.g. label_column=1"):
        representative_subset(Rows(values, tuple), 50, label_column="label")


def test_tensor_dataset_and_objects():
    numbers = torch.arange(90) % 3
    subset = representative_subset(torch.utils.data.TensorDataset(torch.zeros(90, 4), numbers), 30, label_column=1)
    assert np.bincount(numbers.numpy()[subset.indices]).tolist() == [10, 10, 10]

    class Record:
        def __init__(self, label):
            self.label = label

    subset = representative_subset([Record(i % 2) for i in range(40)], 10, label_column="label")
    assert (subset.indices % 2).sum() == 5


def test_arrays_have_the_stated_kinds_and_order():
    subset = representative_subset({"label": labels()}, 37)
    assert (subset.indices.dtype, subset.weights.dtype, subset.strata.dtype) == (np.int64, np.float64, np.int64)
    assert len(subset) == len(np.unique(subset.indices)) == 37
    assert bool((np.diff(subset.indices) > 0).all())
    assert subset.weights.sum() == pytest.approx(300)
    assert subset.n_total == 300


@pytest.mark.parametrize(
    ("size", "rows"),
    [(1, 1), (300, 300), (0.1, 30), (0.0001, 1), (0.999, 300), (1.0, 300), (np.int32(7), 7), (np.float32(0.5), 150)],
)
@pytest.mark.parametrize("strategy", ["stratified", "random"])
def test_size_is_rows_or_a_fraction(size, rows, strategy):
    assert len(representative_subset({"label": labels()}, size, strategy=strategy)) == rows


@pytest.mark.parametrize("size", [0, 301, -1, 1.5, 0.0, True, "10", None])
def test_other_sizes_are_refused(size):
    with pytest.raises(ValueError, match=r"size is .* dataset has 300 rows; allowed are whole numbers from 1 to 300"):
        representative_subset({"label": labels()}, size)


def test_whole_dataset_has_weight_one_and_is_exact():
    subset = representative_subset({"label": labels()}, 300)
    np.testing.assert_array_equal(subset.indices, np.arange(300))
    np.testing.assert_array_equal(subset.weights, np.ones(300))
    assert subset.design().exact
    assert not representative_subset({"label": labels()}, 299).design().exact


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0"])
def test_seed_is_a_whole_number(seed):
    with pytest.raises(ValueError, match="seed is .* allowed are whole numbers >= 0"):
        representative_subset({"label": labels()}, 10, seed=seed)


def test_seeds_give_other_rows():
    first, second = (representative_subset({"label": labels()}, 30, seed=seed).indices for seed in (0, 1))
    assert not np.array_equal(first, second)


SCRIPT = """
import hashlib
from hf_trainplus import representative_subset
rows = [{"label": "class %d" % (i * i % 17), "tags": ["t%d" % (i % 5), "t%d" % (i % 7)]} for i in range(2000)]
digest = hashlib.sha256()
for column in ("label", "tags"):
    digest.update(representative_subset(rows, 333, label_column=column, seed=5).indices.tobytes())
print(digest.hexdigest())
"""


def test_rows_are_the_same_in_every_python_run():
    def run(hash_seed):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, check=True).stdout

    digest = run("1")
    assert len(digest.strip()) == len(hashlib.sha256().hexdigest())
    assert digest == run("2")


class WatchedDataset:
    """Stands for a datasets.Dataset and notes which columns were read."""

    def __init__(self, columns):
        self.inner, self.asked = datasets.Dataset.from_dict(columns), []

    column_names = property(lambda self: self.inner.column_names)

    def __len__(self):
        return len(self.inner)

    def select_columns(self, names):
        self.asked += names
        return self.inner.select_columns(names)

    def with_format(self, kind):
        raise AssertionError("the whole dataset was read")

    def __getitem__(self, key):
        raise AssertionError("a whole row was read")


def test_only_the_column_that_is_needed_is_read():
    watched = WatchedDataset({"text": ["x"] * 300, "label": labels()})
    representative_subset(watched, 10, label_column="label")
    assert watched.asked == ["label"]
    watched.asked.clear()
    representative_subset(watched, 10, strategy="random")
    assert watched.asked == []


def test_random_reads_no_row_but_one_of_a_map_style_dataset():
    rows = Rows(labels())
    representative_subset(rows, 10, strategy="random")
    assert set(rows.read) <= {0}


def test_label_column_is_inferred():
    assert representative_subset({"text": ["t"] * 300, "labels": labels()}, 10).method.startswith(
        "stratified by 'labels'"
    )
    plain = representative_subset({"text": ["t"] * 300}, 10)
    assert plain.method == "stratified: no label column, one stratum"
    assert len(plain) == 10


def test_a_frames_columns_may_be_named_by_numbers():
    import pandas as pd

    labels = np.arange(100) % 4
    found = representative_subset(pd.DataFrame({0: labels}), 20, label_column="0")
    assert np.bincount(labels[found.indices]).tolist() == [5, 5, 5, 5]


def test_token_ids_are_not_taken_for_labels():
    generator = np.random.default_rng(0)
    tokens = [generator.integers(0, 30_000, 20).tolist() for _ in range(100)]
    assert "no label column" in representative_subset({"labels": tokens}, 10).method


def test_nested_columns():
    rows = [{"meta": {"label": {"name": label}}} for label in labels()]
    expected = representative_subset({"label": labels()}, 50, label_column="label").indices
    for dataset in (rows, datasets.Dataset.from_list(rows), pa.Table.from_pylist(rows), pd.DataFrame(rows)):
        subset = representative_subset(dataset, 50, label_column="meta.label.name")
        np.testing.assert_array_equal(subset.indices, expected)
    with pytest.raises(ValueError, match=r"no column 'meta.color'"):
        representative_subset(pa.Table.from_pylist(rows), 50, label_column="meta.color")
    with pytest.raises(TypeError, match="name one of its fields, e.g. label_column='outer.inner'"):
        representative_subset(rows, 50, label_column="meta")


def test_a_column_named_with_a_dot_is_found_first():
    rows = [{"meta.label": label, "meta": {"label": 0}} for label in labels()]
    subset = representative_subset(rows, 50, label_column="meta.label")
    assert len(np.unique(subset.strata)) == 3


def test_wrong_use_is_named():
    table = {"label": labels()}
    with pytest.raises(ValueError, match="no column 'target'; the dataset has 'label'"):
        representative_subset(table, 10, label_column="target")
    with pytest.raises(ValueError, match="strategy is 'best'; allowed are 'stratified', 'random'"):
        representative_subset(table, 10, strategy="best")
    with pytest.raises(ValueError, match="allocation is 'optimal'; allowed are 'proportional', 'equal', 'neyman'"):
        representative_subset(table, 10, allocation="optimal")
    with pytest.raises(ValueError, match="'neyman' needs to know how much rows vary; give reference_loss="):
        representative_subset(table, 10, allocation="neyman")
    with pytest.raises(ValueError, match="features= was given and strategy is 'random'"):
        representative_subset(table, 10, strategy="random", features="label")
    with pytest.raises(ValueError, match="allocation='equal' was given and the strategy has no strata"):
        representative_subset(table, 10, strategy="random", allocation="equal")
    with pytest.raises(ValueError, match="reference_loss= was given and the strategy has no strata"):
        representative_subset(table, 10, strategy="random", reference_loss=np.zeros(300))
    with pytest.raises(ValueError, match="allocation='equal' was given and the strategy has no strata"):
        representative_subset(iter([1, 2]), 1, strategy="prefix", allocation="equal")
    with pytest.raises(TypeError, match="strategy is .* allowed are"):
        representative_subset(table, 10, strategy=RandomStrategy)
    with pytest.raises(TypeError, match="dictionary of datasets was given; choose one, e.g. dataset..train.."):
        representative_subset(datasets.DatasetDict(train=datasets.Dataset.from_dict(table)), 10)
    with pytest.raises(TypeError, match="int is no dataset"):
        representative_subset(7, 1)
    with pytest.raises(ValueError, match="columns of unequal length"):
        representative_subset({"a": [1], "b": [1, 2]}, 1)
    with pytest.raises(ValueError, match="label_column is a position and the dataset has named columns"):
        representative_subset(pa.table(table), 10, label_column=0)
    with pytest.raises(ValueError, match="stream_rows was given and the dataset is no stream"):
        representative_subset(table, 10, stream_rows=5)
    with pytest.raises(ValueError, match="the dataset has no row"):
        representative_subset({"label": []}, 1)


@pytest.mark.parametrize(
    "options", [{"allocation": "equal"}, {"reference_loss": np.ones(300)}, {"features": np.ones(300)}]
)
def test_options_beside_a_strategy_object_are_not_passed_over(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))}= was given and strategy is an object"):
        representative_subset({"label": labels()}, 10, strategy=RandomStrategy(), **options)


class Own:
    def __init__(self, subset):
        self.subset = subset

    def select(self, columns, size, *, seed):
        return self.subset


def test_an_own_strategy_is_used_and_held_to_its_contract():
    table = {"label": labels()}
    good = Subset([3, 5], [150.0, 150.0], [0, 0], "mine")
    assert representative_subset(table, 2, strategy=Own(good)) is good
    strategy = StratifiedStrategy("label", "equal")
    assert representative_subset(table, 9, strategy=strategy).method == "stratified by 'label', 3 strata, equal"
    with pytest.raises(
        ValueError, match=r"Own.select\(\) returned 2 rows, the last at \[5\]; asked for were exactly 3"
    ):
        representative_subset(table, 3, strategy=Own(good))
    with pytest.raises(ValueError, match=r"the last at \[500\]"):
        representative_subset(table, 1, strategy=Own(Subset([500], [1.0], [0])))
    with pytest.raises(ValueError, match=r"weights that add up to 2 and the dataset has 300 rows; .*\[300 / 2\] \* 2"):
        representative_subset(table, 2, strategy=Own(Subset([3, 5], [1.0, 1.0], [0, 0])))
    with pytest.raises(TypeError, match="returned list; return a Subset"):
        representative_subset(table, 1, strategy=Own([1]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([2, 1], [1, 1], [0, 0]), "indices must be >= 0 and ascend"),
        (([1, 1], [1, 1], [0, 0]), "indices must be >= 0 and ascend"),
        (([-1], [1], [0]), "indices must be >= 0 and ascend"),
        (([1], [1, 1], [0]), "one value a row in each"),
        (([1], [0.0], [0]), "not positive numbers"),
        (([1], [np.nan], [0]), "not positive numbers"),
    ],
)
def test_bad_subsets_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        Subset(*columns)


def test_reference_results_must_cover_the_dataset():
    table = {"label": labels(20)}
    results = ExampleResults(range(19), np.ones(19), np.ones(19))
    with pytest.raises(
        ValueError, match="reference results have 19 rows and are not those of all 20 rows of the dataset; give a full"
    ):
        representative_subset(table, 10, strategy="difficulty", reference_loss=results)
    with pytest.raises(ValueError, match=r"reference_loss has shape \(3,\), the dataset 20 rows"):
        representative_subset(table, 10, strategy="difficulty", reference_loss=[1, 2, 3])
    with pytest.raises(ValueError, match="strategy='difficulty' needs reference_loss="):
        representative_subset(table, 10, strategy="difficulty")


def test_frames_that_turn_into_arrow_are_read():
    class Frame:
        """What polars.DataFrame offers."""

        def __init__(self, table):
            self.table = table

        columns = property(lambda self: self.table.column_names)

        def to_arrow(self):
            return self.table

    subset = representative_subset(Frame(pa.table({"label": labels()})), 50, seed=3)
    np.testing.assert_array_equal(subset.indices, representative_subset({"label": labels()}, 50, seed=3).indices)
