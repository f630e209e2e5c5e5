"""A checkpoint takes its place when it is whole, and what a kill leaves is finished or removed."""

import os
import shutil

import pytest

from hf_trainplus.training.checkpoints import staging as module
from hf_trainplus.training.checkpoints.record import CheckpointRecord, record_of
from hf_trainplus.training.checkpoints.staging import Staging, recover
from hf_trainplus.training.checkpoints.writer import Writer

GONE = Writer(Writer.current().host, 2**22 + 7, 1).folder_name  # above the largest number of a process


class Killed(BaseException):
    """Stands for SIGKILL inside one process."""


def write(staging, name="checkpoint-4", text="new"):
    os.makedirs(staging.path(name))
    for file in ("trainer_state.json", "model.safetensors"):
        with open(os.path.join(staging.path(name), file), "w") as handle:
            handle.write(text)


def seal(staging, name="checkpoint-4"):
    staging.seal(name, CheckpointRecord.describe(staging.path(name), None))


def content(run_dir, name="checkpoint-4"):
    path = run_dir / name / "model.safetensors"
    return path.read_text() if path.is_file() else None


def old(run_dir, name="checkpoint-4"):
    (run_dir / name).mkdir()
    (run_dir / name / "trainer_state.json").write_text("old")
    (run_dir / name / "model.safetensors").write_text("old")


@pytest.mark.parametrize("replaces", [False, True])
def test_it_takes_its_place_with_its_record(replaces, tmp_path):
    if replaces:
        old(tmp_path)
    staging = Staging.beside(str(tmp_path))
    write(staging)
    assert content(tmp_path) == ("old" if replaces else None)
    seal(staging)
    staging.finish()
    assert content(tmp_path) == "new"
    assert record_of(tmp_path / "checkpoint-4") is not None
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-4", "trainplus_checkpoints"]


def test_without_a_seal_nothing_happens(tmp_path):
    staging = Staging.beside(str(tmp_path))
    write(staging)
    staging.finish()
    assert content(tmp_path) is None
    assert staging.exists


CALLS = [(os, "rename"), (os, "replace"), (os, "makedirs"), (shutil, "rmtree"), (module, "sync_path")]


@pytest.mark.parametrize("replaces", [False, True])
def test_a_kill_at_any_call_leaves_the_old_or_what_recover_needs_for_the_new(replaces, tmp_path, monkeypatch):
    """Kill before the k-th call for every k that there is; nothing is ever lost, and a sealed checkpoint arrives."""
    kills = 0
    for point in range(1, 100):
        run_dir = tmp_path / str(point)
        run_dir.mkdir()
        old(run_dir, "checkpoint-2")
        if replaces:
            old(run_dir)
        staging = Staging.beside(str(run_dir), GONE)
        write(staging)
        seal(staging)
        with monkeypatch.context() as patch:
            killed = _finish_and_kill(staging, patch, point)
        assert content(run_dir, "checkpoint-2") == "old"
        recover(run_dir)
        assert content(run_dir) == "new"
        assert record_of(run_dir / "checkpoint-4") is not None
        assert not (run_dir / GONE).exists()
        if not killed:
            break
        kills += 1
    assert kills >= (8 if replaces else 5)


def _finish_and_kill(staging, patch, point):
    count = 0

    def counted(original):
        def passing(*args, **kwargs):
            nonlocal count
            count += 1
            if count == point:
                raise Killed
            return original(*args, **kwargs)

        return passing

    for owner, name in CALLS:
        patch.setattr(owner, name, counted(getattr(owner, name)))
    try:
        staging.finish()
    except Killed:
        return True
    return False


def test_what_is_not_sealed_is_removed_and_the_old_one_stays(tmp_path):
    old(tmp_path)
    write(Staging.beside(str(tmp_path), GONE))
    assert recover(tmp_path) == [GONE]
    assert content(tmp_path) == "old"
    assert os.listdir(tmp_path) == ["checkpoint-4"]


def test_another_run_that_is_writing_is_left_alone(tmp_path):
    parent = Writer(Writer.current().host, os.getppid(), 0)
    import psutil

    living = Writer(parent.host, parent.pid, int(psutil.Process(parent.pid).create_time())).folder_name
    staging = Staging.beside(str(tmp_path), living)
    write(staging)
    seal(staging)
    assert recover(tmp_path) == []
    assert staging.exists
    assert content(tmp_path) is None


@pytest.mark.parametrize("name", ["_trainplus_saving", "checkpoint-5", "notes", "_other-host-1-1"])
def test_folders_of_others_are_never_touched(name, tmp_path):
    (tmp_path / name).mkdir()
    assert recover(tmp_path) == []
    assert (tmp_path / name).is_dir()


def test_files_that_a_callback_put_there_before_stay(tmp_path):
    (tmp_path / "checkpoint-4" / "plots").mkdir(parents=True)
    (tmp_path / "checkpoint-4" / "notes.txt").write_text("kept")
    (tmp_path / "checkpoint-4" / "optimizer.pt").write_text("of a torn save")
    staging = Staging.beside(str(tmp_path))
    write(staging)
    seal(staging)
    staging.finish()
    assert sorted(os.listdir(tmp_path / "checkpoint-4")) == [
        "model.safetensors",
        "notes.txt",
        "plots",
        "trainer_state.json",
    ]


def test_a_run_without_a_folder(tmp_path):
    assert recover(tmp_path / "never") == []
