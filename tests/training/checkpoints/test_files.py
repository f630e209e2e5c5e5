"""Files reach the disk whole."""

import errno
import os

import pytest

from hf_trainplus.training.checkpoints.files import replace_text, sizes, sync_path, sync_tree


def test_a_text_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a.json"
    replace_text(path, "one")
    replace_text(str(path), "two")
    assert path.read_text() == "two"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_write_that_fails_leaves_the_old_text(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    replace_text(path, "one")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_text(path, "two")
    assert path.read_text() == "one"


def test_every_file_and_folder_is_flushed_the_outermost_last(tmp_path, monkeypatch):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "a").write_text("a")
    (tmp_path / "in" / "deep" / "b").write_text("b")
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    sync_tree(tmp_path)
    names = [os.path.relpath(path, tmp_path) for path in flushed]
    assert set(names) == {".", "a", "in", "in/deep", "in/deep/b"}
    assert names[-1] == "."
    assert names.index("in/deep/b") < names.index("in/deep") < names.index("in")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_flushes_no_folder_is_left_alone(number, tmp_path, monkeypatch):
    def cannot(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", cannot)
    sync_path(tmp_path)


def test_a_disk_that_fails_is_not_hidden(tmp_path, monkeypatch):
    def broken(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output error"):
        sync_path(tmp_path)


def test_sizes_of_nested_files(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b").write_bytes(b"12345")
    (tmp_path / "a").write_bytes(b"")
    assert sizes(tmp_path) == {"a": 0, "in/b": 5}
