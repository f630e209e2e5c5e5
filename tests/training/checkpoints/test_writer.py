"""Whose a temporary folder is, and whether its process is still there."""

import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
from transformers.trainer_utils import get_last_checkpoint, sort_checkpoints

from hf_trainplus.training.checkpoints.writer import FOREIGN_SECONDS, Writer


@pytest.fixture
def other():
    """Another process that is alive."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    if process.poll() is None:
        process.communicate(b"\n", timeout=20)
    process.stdin.close()


def writer_of(process):
    return replace(Writer.current(), pid=process.pid, started=int(psutil.Process(process.pid).create_time()))


def test_the_name_is_no_checkpoint_to_upstream_and_no_part_of_an_upload(tmp_path):
    name = Writer.current().folder_name
    (tmp_path / name).mkdir()
    assert get_last_checkpoint(str(tmp_path)) is None
    assert sort_checkpoints(str(tmp_path)) == []
    assert name.startswith("_")  # upstream uploads without "_*"


@pytest.mark.parametrize("name", ["checkpoint-3", "_trainplus_saving-", "_trainplus_saving-host-1", "runs", ".git"])
def test_other_names_are_nobodys(name):
    assert Writer.of(name) is None


def test_hosts_with_dashes(tmp_path):
    writer = Writer("node-12-a.cluster", 7, 1700000000)
    assert Writer.of(writer.folder_name) == writer


def test_a_living_process_is_left_alone_and_a_dead_one_is_gone(other, tmp_path):
    writer = writer_of(other)
    assert not writer.is_gone(tmp_path)
    other.communicate(b"\n", timeout=20)
    assert writer.is_gone(tmp_path)


def test_a_killed_process_that_nobody_has_waited_for_is_gone(other, tmp_path):
    writer = writer_of(other)
    other.kill()
    psutil.wait_procs([], timeout=0)
    while psutil.Process(other.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    assert writer.is_gone(tmp_path)


def test_a_number_that_another_process_has_now_is_gone(other, tmp_path):
    assert replace(writer_of(other), started=1).is_gone(tmp_path)


def test_what_this_process_left_is_its_own_to_remove(tmp_path):
    assert Writer.current().is_gone(tmp_path)


def test_of_another_machine_a_day_without_a_change_is_needed(tmp_path):
    writer = Writer("elsewhere", os.getpid(), 1)
    inner = tmp_path / "checkpoint-1" / "model.safetensors"
    inner.parent.mkdir()
    inner.write_bytes(b"1")
    os.utime(tmp_path, (0, 0))
    changed = inner.stat().st_mtime
    assert not writer.is_gone(tmp_path, now=changed + FOREIGN_SECONDS - 1)
    assert writer.is_gone(tmp_path, now=changed + FOREIGN_SECONDS + 60)
