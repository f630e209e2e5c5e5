"""Rows that are kept in memory or on disk: the same arrays, in dataset order, and little of them resident."""

from __future__ import annotations

import mmap
import os
import time

import numpy as np
import psutil
import pytest

from hf_trainplus.evaluation.rows import RowCollector
from hf_trainplus.evaluation.spool import SpoolFolder, spool_folder_from_environment
from hf_trainplus.evaluation.spooled_array import SpooledArray, little_resident
from hf_trainplus.evaluation.spooled_rows import SpooledRows

MIB = 2**20


def spool(tmp_path, **options):
    return SpoolFolder(str(tmp_path), from_bytes=256, **options)


def collected(collector, order, rows, batch=3):
    for start in range(0, len(order), batch):
        where = np.array(order[start : start + batch])
        width = max(len(rows[k]) for k in where)
        values = np.stack([np.pad(rows[k], (0, width - len(rows[k])), constant_values=-100) for k in where])
        collector.add(where, values)
    return collector.finish()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_])
@pytest.mark.parametrize("case", ["longest first", "shortest first", "mixed", "equal", "subset"])
def test_disk_and_memory_give_the_same_rows(case, dtype, tmp_path):
    rng = np.random.default_rng(0)
    lengths = np.full(40, 9) if case == "equal" else rng.integers(1, 30, 40)
    rows = [rng.integers(0, 2, length).astype(dtype) for length in lengths]
    order = list(rng.permutation(40)) if case in ("mixed", "equal", "subset") else list(np.argsort(lengths))
    order = order[::-1] if case == "longest first" else order[:17] if case == "subset" else order
    spooled = collected(RowCollector(spool(tmp_path)), order, rows)
    memory = collected(RowCollector(), order, rows)
    assert isinstance(spooled, SpooledRows)
    assert not isinstance(memory, np.memmap)
    assert spooled.dtype == memory.dtype
    np.testing.assert_array_equal(spooled, memory)
    assert os.listdir(tmp_path) == []


def test_longest_first_is_written_once(tmp_path, monkeypatch):
    files = []
    opened = SpoolFolder.open
    monkeypatch.setattr(SpoolFolder, "open", lambda self: files.append(1) or opened(self))
    rows = [np.arange(length, dtype=np.float32) for length in range(1, 41)]
    collected(RowCollector(spool(tmp_path)), list(range(39, -1, -1)), rows)
    assert len(files) == 1


def test_growing_rows_take_two_files_and_the_result(tmp_path, monkeypatch):
    files = []
    opened = SpoolFolder.open
    monkeypatch.setattr(SpoolFolder, "open", lambda self: files.append(1) or opened(self))
    rows = [np.arange(length, dtype=np.float32) for length in range(1, 401)]
    collected(RowCollector(spool(tmp_path)), list(range(400)), rows)
    assert len(files) == 3


def test_a_function_may_write_into_what_it_is_given(tmp_path):
    found = collected(RowCollector(spool(tmp_path)), list(range(40)), [np.ones(9, np.float32)] * 40)
    with little_resident((found, None)):
        found[found == 1] = 3
        found -= 1
    assert isinstance(found, SpooledRows)
    assert (found == 2).all()


@pytest.mark.parametrize("view", [np.s_[:], np.s_[:, :-1], np.s_[::2]])
@pytest.mark.parametrize("axis", [-1, 0, 1, (1, 2), None])
def test_reductions_are_those_of_an_array_in_memory(view, axis, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_trainplus.evaluation.spooled_rows.PIECE_BYTES", 500)
    plain = np.random.default_rng(0).normal(size=(11, 4, 6)).astype(np.float32)
    array = SpooledArray(spool(tmp_path), (4, 6), plain.dtype)
    array.write(np.arange(11), plain)
    rows, plain = array.mapped(11)[view], plain[view]
    for reduce in (np.max, np.mean, np.sum, np.std, np.any):
        ours, theirs = reduce(rows, axis=axis), reduce(plain, axis=axis)
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
    if not isinstance(axis, tuple):
        np.testing.assert_array_equal(np.argmax(rows, axis=axis), plain.argmax(axis))
    np.testing.assert_array_equal(rows.max(axis=-1, keepdims=True), plain.max(axis=-1, keepdims=True))
    np.testing.assert_array_equal(np.exp(rows) + rows, np.exp(plain) + plain)
    assert type(rows.max(-1)) is np.ndarray


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="the system has no such call")
def test_resident_memory_does_not_grow_with_the_rows(tmp_path):
    process, peak = psutil.Process(), []
    batch = np.zeros((8, 64, 2000), np.float32)  # 4 MB
    before = process.memory_info().rss
    collector = RowCollector(SpoolFolder(str(tmp_path)))
    for start in range(0, 512, 8):
        collector.add(np.arange(start, start + 8), batch)
        peak.append(process.memory_info().rss)
    rows = collector.finish()
    for _ in range(3):
        assert float(rows.mean(-1).sum()) == 0
        peak.append(process.memory_info().rss)
    with little_resident(rows):
        for _ in range(3):
            assert float(rows.max(-1).sum()) == 0
            peak.append(process.memory_info().rss)
        for start in range(0, 512, 8):
            time.sleep(0.003)
            assert not rows[start : start + 8].any()
            peak.append(process.memory_info().rss)
    assert rows.nbytes == 250 * MIB
    assert max(peak) - before < 120 * MIB


def test_space_is_checked_with_the_first_batch_and_names_the_variable(tmp_path):
    collector = RowCollector(spool(tmp_path, free_bytes=lambda path: 10_000), rows_total=1000)
    with pytest.raises(ValueError, match=r"need about .* GiB .*TRAINPLUS_SPOOL"):
        collector.add(np.arange(4), np.zeros((4, 10)))
    fits = RowCollector(spool(tmp_path, free_bytes=lambda path: 90_000), rows_total=1000)
    fits.add(np.arange(4), np.zeros((4, 10)))
    fits.close()
    with pytest.raises(ValueError, match="need about"):
        RowCollector(spool(tmp_path, free_bytes=lambda path: 90_000), rows_total=1000, copies=3).add(
            np.arange(4), np.zeros((4, 10))
        )


def test_a_folder_that_is_not_there_is_named_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINPLUS_SPOOL", str(tmp_path / "none"))
    with pytest.raises(ValueError, match="no such folder; make it, or set TRAINPLUS_SPOOL"):
        spool_folder_from_environment()
    monkeypatch.setenv("TRAINPLUS_SPOOL", str(tmp_path))
    assert spool_folder_from_environment().path == str(tmp_path)


def test_shorter_float_rows_are_filled_as_upstream_fills_them():
    found = collected(RowCollector(), [0, 1, 2, 3], [np.ones(3, np.float32)] * 3 + [np.ones(1, np.float32)])
    assert found.tolist() == [[1, 1, 1]] * 3 + [[1, -100, -100]]


def test_freed_memory_is_given_back_while_rows_are_written(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr("hf_trainplus.evaluation.spooled_array.return_freed_memory", lambda: called.append(1))
    collector = RowCollector(SpoolFolder(str(tmp_path)))
    for start in range(0, 64, 8):
        collector.add(np.arange(start, start + 8), np.zeros((8, 2**20), np.float32))  # 32 MiB
    collector.close()
    assert len(called) == 4
