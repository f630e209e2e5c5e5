"""Results on disk: whole rows of the right identity come back bit for bit, everything else counts as absent."""

import json
import math
import os
import threading
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hf_trainplus.evaluation.cache import CacheEntry, ResultCache, Summary
from hf_trainplus.identity import Identity
from hf_trainplus.results import ExampleResults

IDENTITY = Identity("w", "d", "m", "p", "fp32", "s")


def results(ids, seed=0, **columns):
    rng = np.random.default_rng(seed)
    n = len(ids)
    columns = {"scores": {"accuracy": rng.random(n)}, "statistics": {"f1": rng.random((n, 3))}} | columns
    return ExampleResults(np.asarray(ids), rng.normal(size=n), rng.integers(1, 5, n), **columns)


def equal(one, other):
    pairs = zip(one._named_columns(), other._named_columns(), strict=True)
    same = all(a == b and np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for (a, x), (b, y) in pairs)
    return same and np.array_equal(one.index, other.index)


@pytest.fixture
def said():
    return []


@pytest.fixture
def cache(tmp_path, said):
    return ResultCache(str(tmp_path / "cache"), warn=said.append)


def files(cache):
    return sorted(os.listdir(cache.folder)) if os.path.isdir(cache.folder) else []


def test_rows_come_back_bit_for_bit_in_the_order_asked_for(cache):
    stored = results([5, 0, 3, 9])
    cache.store(IDENTITY, stored)
    assert equal(cache.lookup(IDENTITY, [9, 0]), stored.take(np.array([3, 1])))
    assert equal(cache.lookup(IDENTITY, [0, 3, 5, 9]), stored.in_dataset_order())
    assert cache.lookup(IDENTITY, [0]).identity == IDENTITY.key


def test_values_that_are_no_numbers_come_back(cache):
    odd = ExampleResults([0, 1, 2], [np.nan, np.inf, -0.0], [1, 1, 0], scores={"x": [np.nan, -np.inf, 5e-324]})
    cache.store(IDENTITY, odd)
    back = cache.lookup(IDENTITY, [0, 1, 2])
    assert equal(back, odd)
    assert math.copysign(1, back.loss_sum[2]) == -1


def test_groups_come_back(cache):
    grouped = results([0, 1, 2], groups={"topic": np.array(["a", "bc", ""]), "source": np.array([7, 8, 9])})
    cache.store(IDENTITY, grouped)
    assert equal(cache.lookup(IDENTITY, [0, 1, 2]), grouped)


@pytest.mark.parametrize("ids", [[1], [0, 1], [10], [-1], []])
def test_unless_all_rows_are_known_there_is_no_answer(cache, ids):
    assert cache.lookup(IDENTITY, ids) is None
    cache.store(IDENTITY, results([0, 2, 9]))
    assert cache.lookup(IDENTITY, ids) is None


def test_rows_gather_over_several_evaluations(cache):
    parts = [results(ids, seed) for seed, ids in enumerate(([4, 1], [0], [8, 2, 3]))]
    for part in parts:
        cache.store(IDENTITY, part)
    for part in parts:
        assert equal(cache.lookup(IDENTITY, part.index), part)
    whole = cache.lookup(IDENTITY, [0, 1, 2, 3, 4, 8])
    assert equal(whole, ExampleResults.concatenate(parts).in_dataset_order())
    assert len(files(cache)) == 1


def test_a_row_that_is_stored_again_is_replaced(cache):
    cache.store(IDENTITY, results([0, 1, 2], seed=1))
    newer = results([1], seed=2)
    cache.store(IDENTITY, newer)
    assert equal(cache.lookup(IDENTITY, [1]), newer)
    assert cache.read(IDENTITY).results.index.tolist() == [0, 1, 2]


def test_rows_with_other_columns_start_anew(cache):
    cache.store(IDENTITY, results([0, 1]), Summary(True))
    cache.store(IDENTITY, results([2], groups={"topic": np.array(["a"])}))
    assert cache.lookup(IDENTITY, [0]) is None
    assert cache.lookup(IDENTITY, [2]).groups["topic"].tolist() == ["a"]
    assert cache.read(IDENTITY).summary([0, 1]) is None


def test_no_rows_are_no_entry(cache):
    cache.store(IDENTITY, results([]))
    assert files(cache) == []


def test_a_summary_belongs_to_exactly_its_rows(cache):
    summary = Summary(True, {"f1": 0.1 + 0.2, "by": {"class": 3}, "odd": float("nan"), "text": None})
    cache.store(IDENTITY, results([3, 1]), summary)
    cache.store(IDENTITY, results([7]), Summary(False, {"f1": 0.5}))
    entry = cache.read(IDENTITY)
    found = entry.summary([1, 3])
    assert list(found.metrics) == ["f1", "by", "odd", "text"]
    assert (found.has_loss, found.metrics["f1"], found.metrics["by"]) == (True, 0.1 + 0.2, {"class": 3})
    assert math.isnan(found.metrics["odd"])
    assert entry.summary([7]) == Summary(False, {"f1": 0.5})
    assert entry.summary([1, 3, 7]) is None


@pytest.mark.parametrize("name", [field.name for field in fields(Identity)])
def test_no_part_of_the_identity_may_differ(cache, name):
    other = replace(IDENTITY, **{name: "other"})
    cache.store(IDENTITY, results([0], seed=1))
    assert cache.lookup(other, [0]) is None
    cache.store(other, results([0], seed=2))
    assert equal(cache.lookup(IDENTITY, [0]), results([0], seed=1))
    assert equal(cache.lookup(other, [0]), results([0], seed=2))


def test_a_file_under_another_name_is_not_believed(cache, said):
    cache.store(IDENTITY, results([0]))
    other = replace(IDENTITY, weights="other")
    os.replace(cache.path(IDENTITY), cache.path(other))
    assert cache.lookup(other, [0]) is None
    assert len(said) == 1
    assert "it belongs to something else" in said[0]


def bytes_of(cache):
    with open(cache.path(IDENTITY), "rb") as file:
        return file.read()


def write(cache, data):
    with open(cache.path(IDENTITY), "wb") as file:
        file.write(data)


def test_a_torn_file_counts_as_absent(cache, said):
    cache.store(IDENTITY, results(range(50)))
    whole = bytes_of(cache)
    cuts = [0, 1, 4, 8, len(whole) // 3, len(whole) // 2, len(whole) - 8, len(whole) - 1]
    for cut in cuts:
        write(cache, whole[:cut])
        assert cache.lookup(IDENTITY, [0]) is None
    assert len(said) == len(cuts)
    assert all("is damaged" in message and "evaluated again" in message for message in said)
    write(cache, whole)
    assert cache.lookup(IDENTITY, [0]) is not None


def test_a_changed_byte_is_found_or_changes_nothing(cache, said):
    stored, summary = results(range(50)), Summary(True, {"f1": 0.25})
    cache.store(IDENTITY, stored, summary)
    whole, found = bytes_of(cache), 0
    for position in range(0, len(whole), 29):
        write(cache, whole[:position] + bytes([whole[position] ^ 0x41]) + whole[position + 1 :])
        entry = cache.read(IDENTITY)
        found += entry is None
        assert entry is None or (equal(entry.results, stored) and entry.summary(range(50)) == summary)
    assert found == len(said) > len(whole) / 29 / 2


def edited(cache, change):
    """Rewrite the file as a person with pyarrow would, with its metadata as it was."""
    table = pq.read_table(cache.path(IDENTITY))
    pq.write_table(change(table), cache.path(IDENTITY))


def with_column(name, values):
    return lambda table: table.set_column(table.column_names.index(name), name, pa.array(values))


def with_metadata(**changes):
    written = {name.encode(): value for name, value in changes.items()}
    return lambda table: table.replace_schema_metadata({**table.schema.metadata, **written})


def other_summary(table):
    content = json.loads(table.schema.metadata[b"trainplus"])
    for summary in content["summaries"].values():
        summary["metrics"]["f1"] = 1.0
    return with_metadata(trainplus=json.dumps(content))(table)


EDITS = {
    "a loss": with_column("loss_sum", [0.0, 0.0]),
    "a count": with_column("target_count", [9.0, 9.0]),
    "a score": with_column("score:accuracy", [1.0, 1.0]),
    "the rows": with_column("index", [0, 2]),
    "a metric": other_summary,
    "the identity": with_metadata(identity="x" * 32),
    "the checksum": with_metadata(trainplus_checksum="0" * 32),
    "the format": with_metadata(trainplus="{}"),
    "no metadata": lambda table: table.replace_schema_metadata(None),
    "fewer rows": lambda table: table.slice(1),
    "a name": lambda table: table.rename_columns([name.replace("accuracy", "recall") for name in table.column_names]),
    "no score": lambda table: table.drop_columns(["score:accuracy"]),
    "no index": lambda table: table.drop_columns(["index"]),
    "another type": with_column("loss_sum", ["a", "b"]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_file_is_not_believed(cache, said, edit):
    cache.store(IDENTITY, results([0, 1]), Summary(True, {"f1": 0.5}))
    edited(cache, lambda table: table)
    assert cache.read(IDENTITY) is not None
    edited(cache, EDITS[edit])
    assert cache.read(IDENTITY) is None
    assert len(said) == 1


def test_a_damaged_file_is_replaced_by_what_is_stored_next(cache, said):
    cache.store(IDENTITY, results([0, 1], seed=1))
    write(cache, b"PAR1")
    cache.store(IDENTITY, results([1], seed=2))
    assert cache.lookup(IDENTITY, [0]) is None
    assert equal(cache.lookup(IDENTITY, [1]), results([1], seed=2))
    assert len(said) == 1


@pytest.mark.parametrize("failing", ["pyarrow.parquet.write_table", "os.fsync", "os.replace"])
def test_a_write_that_fails_leaves_what_was_there(cache, monkeypatch, failing):
    cache.store(IDENTITY, results([0], seed=1))
    with monkeypatch.context() as patch:

        def fail(*args, **kwargs):
            raise OSError("no space left on device")

        patch.setattr(failing, fail)
        with pytest.raises(OSError, match="no space left"):
            cache.store(IDENTITY, results([1], seed=2))
    assert files(cache) == [os.path.basename(cache.path(IDENTITY))]
    assert equal(cache.read(IDENTITY).results, results([0], seed=1))


def test_a_reader_beside_a_writer_sees_whole_files_only(cache, said):
    versions = [results(range(200), seed) for seed in range(12)]
    cache.store(IDENTITY, versions[0])
    stop, seen = threading.Event(), []

    def read():
        while not stop.is_set():
            seen.append(ResultCache(cache.folder, warn=said.append).lookup(IDENTITY, range(200)))

    reader = threading.Thread(target=read)
    reader.start()
    for version in versions[1:]:
        cache.store(IDENTITY, version)
    stop.set()
    reader.join()
    assert said == []
    assert seen
    assert all(any(equal(found, version) for version in versions) for found in seen)


def test_what_was_used_longest_ago_makes_room(tmp_path):
    cache = ResultCache(str(tmp_path), most_bytes=0)
    foreign = tmp_path / "notes.txt"
    foreign.write_text("x" * 10_000)
    identities = [replace(IDENTITY, weights=str(k)) for k in range(3)]
    keeping = ResultCache(str(tmp_path))
    for k, identity in enumerate(identities[:2]):
        keeping.store(identity, results(range(20)))
        os.utime(keeping.path(identity), ns=(k, k))
    assert keeping.lookup(identities[0], [0]) is not None  # now used last
    size = sum(os.path.getsize(keeping.path(identity)) for identity in identities[:2])
    ResultCache(str(tmp_path), most_bytes=size + 100).store(identities[2], results(range(20)))
    assert [os.path.isfile(cache.path(identity)) for identity in identities] == [True, False, True]
    cache.store(identities[2], results(range(20)))
    assert [os.path.isfile(cache.path(identity)) for identity in identities] == [False, False, True]
    assert foreign.exists()


def test_an_entry_takes_its_rows_in_dataset_order():
    entry = CacheEntry(results([2, 5, 7]))
    assert entry.rows([7, 2]).index.tolist() == [7, 2]
    assert entry.rows([7, 3]) is None
    assert CacheEntry(results([])).rows([0]) is None
