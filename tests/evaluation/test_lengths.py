import numpy as np
import pytest
import torch
from datasets import Dataset, concatenate_datasets
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from hf_trainplus.evaluation import lengths as lengths_module
from hf_trainplus.evaluation.batching import plan_batches
from hf_trainplus.evaluation.lengths import measured_length, row_lengths

LISTS = [[1, 2, 3], [4], [], [5, 6]]


def arrow(**columns):
    return Dataset.from_dict(columns or {"input_ids": LISTS})


class Computed(torch.utils.data.Dataset):
    """Rows that cost something: any read is counted."""

    def __init__(self, n):
        self.n, self.reads = n, 0

    def __len__(self):
        return self.n

    def __getitem__(self, position):
        self.reads += 1
        return {"input_ids": [0] * (position % 9 + 1)}


def test_lists_of_an_arrow_dataset():
    assert row_lengths(arrow()).tolist() == [3, 1, 0, 2]
    assert row_lengths(arrow()).dtype == np.int64


def test_columnar_read_makes_no_python_object(monkeypatch):
    def refuse(self, key, **_):
        raise AssertionError(f"row or column {key!r} was read")

    dataset = arrow()
    monkeypatch.setattr(Dataset, "_getitem", refuse)
    with pytest.raises(AssertionError, match="row or column 0 was read"):
        dataset[0]
    assert row_lengths(dataset).tolist() == [3, 1, 0, 2]


def test_a_subclass_with_rows_of_its_own_has_no_known_lengths():
    class Longer(Dataset):
        def __getitem__(self, key):
            return {"input_ids": [0] * 99}

    dataset = arrow()
    dataset.__class__ = Longer
    assert row_lengths(dataset) is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda data: data.select([3, 0]), [2, 3]),
        (lambda data: data.select(range(1, 3)), [1, 0]),
        (lambda data: data.filter(lambda row: len(row["input_ids"]) > 1), [3, 2]),
        (lambda data: data.shard(2, 1, contiguous=False), [1, 2]),
        (lambda data: concatenate_datasets([data, data.select([3])]), [3, 1, 0, 2, 2]),
        (lambda data: concatenate_datasets([data, data]).select([7, 0]), [2, 3]),
        (lambda data: data.with_format("torch"), [3, 1, 0, 2]),
    ],
)
def test_row_selections_are_honoured(change, expected):
    changed = change(arrow())
    assert row_lengths(changed).tolist() == expected
    assert [len(row["input_ids"]) for row in changed] == expected


def test_shuffled_lengths_match_the_rows():
    rng = np.random.default_rng(0)
    data = arrow(input_ids=[[1] * int(k) for k in rng.integers(0, 30, 200)]).shuffle(seed=1).select(range(50, 150))
    assert row_lengths(data).tolist() == [len(row) for row in data["input_ids"]]


def test_large_and_fixed_size_lists():
    import pyarrow as pa

    for kind in (pa.large_list(pa.int64()), pa.list_(pa.int64(), 2)):
        table = pa.table({"input_ids": pa.array([[1, 2], [3, 4]], type=kind)})
        assert row_lengths(Dataset(table)).tolist() == [2, 2]


def test_a_length_column_goes_first():
    assert row_lengths(arrow(length=[7, 8], input_ids=[[1], [2]])).tolist() == [7, 8]
    assert row_lengths(arrow(length=[7, 8], input_ids=[[1], [2]]).select([1])).tolist() == [8]


def test_a_length_column_that_counts_nothing_is_passed_over():
    assert row_lengths(arrow(length=["long", "short"], input_ids=[[1], [2, 3]])).tolist() == [1, 2]
    assert row_lengths(arrow(length=[1.5, 2.5], input_ids=[[1], [2, 3]])).tolist() == [1, 2]
    assert row_lengths(arrow(length=[None, 2], input_ids=[[1], [2, 3]])).tolist() == [1, 2]


def test_the_longer_of_inputs_and_targets_counts():
    data = {"input_ids": [[1, 2], [3, 4, 5]], "labels": [[1, 2, 3, 4], [1]]}
    assert row_lengths(arrow(**data)).tolist() == [4, 3]
    rows = [dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)]
    assert row_lengths(rows).tolist() == [4, 3]


def test_class_labels_are_no_lengths():
    assert row_lengths(arrow(input_ids=[[1, 2], [3]], labels=[50, 60])).tolist() == [2, 1]
    assert row_lengths(arrow(labels=[[1, 0], [0, 1]])) is None


def test_lists_of_lists_count_as_padded():
    choices = [[[1, 2, 3], [4]], [[1], [2]]]
    assert row_lengths(arrow(input_ids=choices)).tolist() == [6, 2]
    assert row_lengths(arrow(input_ids=choices).select([1, 0])).tolist() == [2, 6]
    assert row_lengths([{"input_ids": choice} for choice in choices]).tolist() == [6, 2]


def test_a_transform_hides_the_stored_lists_but_not_a_length_column():
    def longer(batch):
        return {"input_ids": [ids * 2 for ids in batch["input_ids"]]}

    assert row_lengths(arrow().with_transform(longer)) is None
    assert row_lengths(arrow(input_ids=[[1], [2]], length=[5, 6]).with_transform(longer)).tolist() == [5, 6]


def test_data_without_sequences_has_no_lengths():
    assert row_lengths(arrow(pixel_values=[[[0.5]], [[0.25]]], label=[0, 1])) is None
    assert row_lengths([{"pixel_values": np.zeros((3, 8, 8))}]) is None
    assert row_lengths(["text", "more text"]) is None


def test_rows_in_memory():
    rows = [{"input_ids": torch.arange(5)}, {"input_ids": np.arange(3)}, {"input_ids": (1, 2)}]
    assert row_lengths(rows).tolist() == [5, 3, 2]
    assert row_lengths(tuple(rows)).tolist() == [5, 3, 2]
    assert row_lengths([*rows, {"pixels": 1}]) is None
    assert row_lengths([]).tolist() == []


def test_wrappers_of_torch_over_known_rows():
    rows = [{"input_ids": ids} for ids in LISTS]
    assert row_lengths(Subset(rows, [3, 0])).tolist() == [2, 3]
    assert row_lengths(ConcatDataset([rows, arrow().select([0])])).tolist() == [3, 1, 0, 2, 3]
    assert row_lengths(Subset(Subset(arrow(), [3, 0]), [1])).tolist() == [3]
    assert row_lengths(ConcatDataset([rows, Computed(2)])) is None
    assert row_lengths(TensorDataset(torch.zeros(3, 4))) is None


def test_a_subclass_of_a_wrapper_may_compute_its_rows():
    class Augmented(Subset):
        def __getitem__(self, position):
            return {"input_ids": [0] * 99}

        def __getitems__(self, positions):
            return [self[position] for position in positions]

    assert row_lengths(Augmented([{"input_ids": ids} for ids in LISTS], [0])) is None


def test_twenty_thousand_computed_rows_are_planned_without_a_read():
    dataset = Computed(20_000)
    assert row_lengths(dataset) is None
    plan = plan_batches(np.arange(len(dataset)), row_lengths(dataset), batch_size=32, tokens_per_batch=4096)
    assert plan.row_count == 20_000
    assert dataset.reads == 0


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"input_ids": [1, 2]}, 2),
        ({"input_ids": torch.zeros(1, 6)}, 6),
        ({"input_values": np.zeros(16000)}, 16000),
        ({"length": 4, "input_ids": [1]}, 4),
        ({"length": np.int64(4)}, 4),
        ({"length": True, "input_ids": [1]}, 1),
        ({"input_ids": torch.tensor(3)}, None),
        ({"input_ids": []}, 0),
        ({"pixel_values": np.zeros((3, 2, 2))}, None),
        ((1, 2), None),
        ("text", None),
    ],
)
def test_measured_length(row, expected):
    assert measured_length(row) == expected


@pytest.fixture
def said(caplog):
    lengths_module._say_negative.cache_clear()
    return lambda: [record.getMessage() for record in caplog.records if "below 0" in record.getMessage()]


@pytest.mark.parametrize("stated", [[-3, -3, -3, -3], [3, 1, 2, -1]])
@pytest.mark.parametrize("kind", ["arrow", "list", "numpy integers", "concatenated"])
def test_a_column_with_a_negative_number_holds_no_lengths(kind, stated, said):
    rows = [{"length": length, "input_ids": ids} for length, ids in zip(stated, LISTS, strict=True)]
    make = {
        "arrow": Dataset.from_list,
        "list": list,
        "numpy integers": lambda given: [{**row, "length": np.int32(row["length"])} for row in given],
        "concatenated": lambda given: ConcatDataset([given, given]),
    }
    for _ in range(2):
        found = row_lengths(make[kind](rows))
        assert found.tolist() == [3, 1, 0, 2] * (2 if kind == "concatenated" else 1)
    assert said() == ["The column 'length' holds numbers below 0, so it is not taken for the lengths of rows."]
    assert row_lengths(make[kind]([{"length": length} for length in stated])) is None


def test_a_selection_without_its_negative_numbers_has_lengths(said):
    assert row_lengths(arrow(length=[-1, 4, 2]).select([1, 2])).tolist() == [4, 2]
    assert row_lengths(arrow(length=[-1]).select([])).tolist() == []
    assert said() == []


def test_a_row_with_a_negative_number_is_measured(said):
    assert measured_length({"length": -3, "input_ids": [1, 2]}) == 2
    assert measured_length({"length": np.int64(-3)}) is None
    assert len(said()) == 1


def test_a_list_that_computes_its_rows_has_no_known_lengths():
    class Computed(list):
        def __getitem__(self, at):
            return {"input_ids": [1] * 9}

    class Named(list):
        """Reads its rows as every list does."""

    assert row_lengths(Computed([{"input_ids": [1]}])) is None
    assert row_lengths(Named([{"input_ids": [1]}])).tolist() == [1]
