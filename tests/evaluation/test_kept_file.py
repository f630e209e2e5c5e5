"""One spool file serves the evaluations of a trainer, and no array that somebody kept ever changes."""

import gc
import os

import numpy as np
import pytest

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from hf_trainplus.evaluation.kept_file import KeptFile
from hf_trainplus.evaluation.spool import SpoolFolder
from hf_trainplus.evaluation.spooled_array import SpooledArray
from tests.support import tiny

ROWS = np.arange(40, dtype=np.float32).reshape(10, 4)


def written(folder, rows):
    array = SpooledArray(folder, rows.shape[1:], rows.dtype)
    array.write(np.arange(len(rows)), rows)
    inode = os.fstat(array._file.fileno()).st_ino
    return array.mapped(len(rows)), inode


def open_files():
    gc.collect()  # what other tests have left
    return len(os.listdir("/proc/self/fd"))


def test_the_next_array_is_written_into_the_same_file(tmp_path):
    kept = KeptFile()
    first, inode = written(SpoolFolder(str(tmp_path), kept=kept), ROWS)
    assert np.array_equal(first, ROWS)
    del first
    assert kept.size(str(tmp_path)) == ROWS.nbytes
    fewer, again = written(SpoolFolder(str(tmp_path), kept=kept), -ROWS[:6])
    assert again == inode
    assert np.array_equal(fewer, -ROWS[:6])


@pytest.mark.parametrize("view", [lambda rows: rows, lambda rows: rows[3:, 1], lambda rows: np.asarray(rows).T])
def test_an_array_that_is_held_does_not_change(view, tmp_path):
    kept = KeptFile()
    first, inode = written(SpoolFolder(str(tmp_path), kept=kept), ROWS)
    held = view(first)
    before = held.copy()
    del first
    assert kept.size(str(tmp_path)) == 0
    second, other = written(SpoolFolder(str(tmp_path), kept=kept), -ROWS)
    assert other != inode
    assert np.array_equal(second, -ROWS)
    assert np.array_equal(held, before)


def test_a_file_of_another_folder_is_given_back(tmp_path):
    kept, before = KeptFile(), open_files()
    (tmp_path / "other").mkdir()
    first, _ = written(SpoolFolder(str(tmp_path), kept=kept), ROWS)
    del first
    second, _ = written(SpoolFolder(str(tmp_path / "other"), kept=kept), ROWS)
    assert np.array_equal(second, ROWS)
    del second
    assert open_files() == before + 1
    kept.drop()
    assert open_files() == before


def test_a_large_file_is_not_kept_and_the_larger_of_two_is(tmp_path):
    before = open_files()
    small = KeptFile(most_bytes=ROWS.nbytes - 1)
    written(SpoolFolder(str(tmp_path), kept=small), ROWS)
    assert open_files() == before
    kept = KeptFile()
    folder = SpoolFolder(str(tmp_path), kept=kept)
    one, two = folder.open(), folder.open()
    one.write(b"0" * 100)
    two.write(b"0" * 10)
    folder.release(one)
    folder.release(two)
    assert kept.size(str(tmp_path)) == 100
    assert open_files() == before + 1
    kept.drop()


def test_without_a_keeper_nothing_is_kept(tmp_path):
    before = open_files()
    written(SpoolFolder(str(tmp_path)), ROWS)
    assert open_files() == before


def test_the_file_goes_with_its_keeper(tmp_path):
    before = open_files()
    kept = KeptFile()
    written(SpoolFolder(str(tmp_path), kept=kept), ROWS)
    assert open_files() == before + 1
    del kept
    assert open_files() == before


def test_its_space_counts_as_free(tmp_path):
    kept = KeptFile()
    folder = SpoolFolder(str(tmp_path), free_bytes=lambda path: 500, kept=kept)
    file = folder.open()
    file.write(b"0" * 600)
    folder.release(file)
    folder.require(1000, "The predictions")
    kept.drop()
    with pytest.raises(ValueError, match="The predictions need about"):
        folder.require(1000, "The predictions")


def test_evaluations_of_a_trainer_open_no_further_file_and_keep_what_a_function_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(SpoolFolder.__init__, "__kwdefaults__", {"from_bytes": 64, "free_bytes": None, "kept": None})
    held, files = [], []

    def metric(prediction):
        files.append(open_files())
        if len(files) in (1, 3):
            held.append((prediction.predictions, prediction.predictions.copy()))
        return {"sum": float(prediction.predictions.sum())}

    trainer = PlusTrainer(
        tiny.llama(),
        PlusTrainingArguments(str(tmp_path), use_cpu=True, report_to="none", disable_tqdm=True),
        data_collator=tiny.PaddingCollator(),
        eval_dataset=tiny.causal_rows(23),
        compute_metrics=metric,
    )
    for _ in range(12):
        trainer.evaluate()
        for parameter in trainer.model.parameters():
            parameter.data += 0.01
    assert isinstance(held[0][0], np.memmap)
    for array, copy in held:
        assert np.array_equal(array, copy)
    assert len(set(files[4:])) == 1
