"""Evaluation sets are told apart by their content, or refused."""

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Image, List, Value
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from hf_trainplus.evaluation.fingerprints import DataFingerprints, ObjectFingerprints
from hf_trainplus.identity import UnknownIdentityError
from tests.support import tiny


def of(dataset):
    return DataFingerprints(ObjectFingerprints().of).of(dataset)


def revised(rows, position, **changes):
    return [{**row, **changes} if place == position else row for place, row in enumerate(rows)]


@pytest.mark.parametrize("make", [list, Dataset.from_list], ids=["list", "Dataset"])
def test_two_revisions_never_share_a_fingerprint(make):
    rows = tiny.rows(9)
    ids = rows[4]["input_ids"]
    versions = [rows, rows[:8], rows[::-1], [*rows, rows[0]], revised(rows, 8, labels=1 - rows[8]["labels"])]
    versions += [revised(rows, 4, input_ids=[*ids[:-1], ids[-1] + 1]), revised(rows, 4, input_ids=[*ids, 3])]
    versions += [[{**row, "extra": 0} for row in rows], [{**row, "labels": float(row["labels"])} for row in rows]]
    found = [of(make(version)) for version in versions]
    assert len(set(found)) == len(found)
    assert of(make(tiny.rows(9))) == found[0]


def test_a_list_that_is_changed_in_place_is_seen():
    rows = tiny.rows(3)
    data = DataFingerprints(ObjectFingerprints().of)
    before = data.of(rows)
    rows[1]["labels"] = 1 - rows[1]["labels"]
    assert data.of(rows) != before


def test_rows_of_tensors_and_arrays_count_by_their_values():
    versions = [[{"x": torch.zeros(2)}], [{"x": torch.ones(2)}], [{"x": np.zeros(2)}], [{"x": np.ones(2)}]]
    versions += [
        [{"x": [0.0, 0.0]}],
        [{"x": np.float64(0)}],
        [{"x": np.int64(0)}],
        [{"x": 0}],
        [{"x": b"0"}],
        ({"x": 0},),
    ]
    found = [of(version) for version in versions]
    assert len(set(found)) == len(found) - 1  # a tuple of rows is evaluated as a list of them is


def test_transforms_of_a_dataset_count_by_what_comes_out():
    base = Dataset.from_list(tiny.rows(9))
    versions = [base, base.select([0, 1, 2]), base.select([2, 1, 0]), base.select([0, 8]), base.shuffle(seed=1)]
    versions += [base.filter(lambda row: row["labels"] == 1), base.map(lambda row: {"labels": row["labels"] + 1})]
    versions += [
        base.remove_columns("attention_mask"),
        base.rename_column("labels", "label"),
        base.with_format("torch"),
    ]
    versions += [base.with_format("torch", columns=["labels"]), base.with_format("numpy", dtype=np.float32)]
    found = [of(version) for version in versions]
    assert len(set(found)) == len(found)
    assert of(base.map(lambda row: {"labels": row["labels"]})) == found[0]


def test_a_library_that_gives_two_contents_one_fingerprint_is_not_believed():
    one, two = Dataset.from_list(tiny.rows(9, seed=1)), Dataset.from_list(tiny.rows(9, seed=2))
    two._fingerprint = one._fingerprint
    assert of(one) != of(two)


def test_names_of_classes_count():
    rows = {"labels": [0, 1]}
    names = [Features({"labels": ClassLabel(names=list(pair))}) for pair in ("ab", "ba")]
    assert len({of(Dataset.from_dict(rows, features=each)) for each in names}) == 2
    assert of(Dataset.from_dict(rows)) not in {of(Dataset.from_dict(rows, features=each)) for each in names}


def test_a_table_is_read_once(monkeypatch):
    calls = []
    read = __import__("hf_trainplus.evaluation.fingerprints.data", fromlist=["x"]).fingerprint_table
    monkeypatch.setattr(
        "hf_trainplus.evaluation.fingerprints.data.fingerprint_table", lambda *args: calls.append(1) or read(*args)
    )
    data, dataset = DataFingerprints(ObjectFingerprints().of), Dataset.from_list(tiny.rows(9))
    plain = data.of(dataset)
    dataset.set_format("torch")
    assert data.of(dataset) != plain
    dataset.reset_format()
    assert data.of(dataset) == plain
    assert len(calls) == 1
    dataset._data = Dataset.from_list(tiny.rows(9, seed=5)).data
    assert data.of(dataset) != plain
    assert len(calls) == 2


def test_no_row_is_read_through_the_dataset(monkeypatch):
    dataset = Dataset.from_list(tiny.rows(9))
    monkeypatch.setattr(Dataset, "_getitem", lambda *args, **kwargs: pytest.fail("a row was read"))
    of(dataset)


def test_datasets_of_torch_count_by_what_they_are_made_of():
    rows, others = tiny.rows(6), tiny.rows(6, seed=1)
    versions = [rows, Subset(rows, [0, 1]), Subset(rows, [1, 0]), Subset(others, [0, 1]), ConcatDataset([rows, others])]
    versions += [ConcatDataset([others, rows]), ConcatDataset([rows]), Subset(Dataset.from_list(rows), [0, 1])]
    versions += [
        TensorDataset(torch.zeros(2)),
        TensorDataset(torch.ones(2)),
        TensorDataset(torch.zeros(2), torch.zeros(2)),
    ]
    found = [of(version) for version in versions]
    assert len(set(found)) == len(found)


class Computed(torch.utils.data.Dataset):
    def __init__(self, **attributes):
        vars(self).update(attributes)

    def __len__(self):
        return 3

    def __getitem__(self, position):
        pytest.fail("a row was read")


class Doubled(Dataset):
    def __getitem__(self, key):
        return super().__getitem__(key)


@pytest.mark.parametrize(
    "dataset",
    [Computed(), Computed(fingerprint=None), Computed(fingerprint=""), Computed(fingerprint=7), Subset(Computed(), [0])]
    + [ConcatDataset([tiny.rows(2), Computed()]), Dataset.from_list(tiny.rows(2)).to_iterable_dataset()]
    + [
        Dataset.from_list(tiny.rows(2)).with_transform(lambda rows: rows),
        Doubled(Dataset.from_list(tiny.rows(2)).data),
    ],
    ids=lambda dataset: type(dataset).__name__,
)
def test_rows_that_are_computed_are_refused(dataset):
    with pytest.raises(UnknownIdentityError, match="computes its rows when they are read"):
        of(dataset)


def test_a_dataset_may_say_itself_what_it_is():
    assert of(Computed(fingerprint="v1")) == of(Computed(fingerprint="v1"))
    assert of(Computed(fingerprint="v1")) != of(Computed(fingerprint="v2"))


def test_files_behind_a_column_are_refused_and_their_bytes_are_not(tmp_path):
    from PIL import Image as Picture

    path = str(tmp_path / "a.png")
    Picture.new("RGB", (2, 2)).save(path)
    by_name = Dataset.from_dict({"image": [path]}).cast_column("image", Image())
    with pytest.raises(UnknownIdentityError, match=r"the column image .* holds names of Image files"):
        of(by_name)
    data = (tmp_path / "a.png").read_bytes()
    features = Features({"image": Image()})
    whole = Dataset.from_dict({"image": [{"bytes": data, "path": None}]}, features=features)
    other = Dataset.from_dict({"image": [{"bytes": data[:-1], "path": None}]}, features=features)
    assert of(whole) != of(other)


def test_files_in_nested_columns_are_refused():
    features = Features({"images": List(Image()), "labels": Value("int64")})
    with pytest.raises(UnknownIdentityError, match=r"the column images .* holds names of Image files"):
        of(Dataset.from_dict({"images": [[]], "labels": [0]}, features=features))
