"""Writes behind the caller: in order, one at a time, and no error is lost."""

import errno
import threading

import numpy as np
import pytest

from hf_trainplus.evaluation.spool import SpoolFolder
from hf_trainplus.evaluation.spooled_array import SpooledArray
from hf_trainplus.evaluation.write_behind import WriteBehind

NAME = "spool-predictions"


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith(NAME)]


def test_the_caller_goes_on_while_one_write_runs():
    behind, gate, order = WriteBehind(), threading.Event(), []

    def slow():
        assert gate.wait(10)
        order.append("first")

    behind.start(slow)  # returns although the write waits
    order.append("caller")
    gate.set()
    behind.start(lambda: order.append("second"))
    behind.finish()
    assert order == ["caller", "first", "second"]
    assert threads() == []


def test_a_second_write_waits_for_the_first():
    behind, gate, states = WriteBehind(), threading.Event(), []
    behind.start(lambda: states.append(gate.wait(0.05)))
    behind.start(lambda: states.append("after"))
    behind.finish()
    assert states == [False, "after"]


@pytest.mark.parametrize("call", ["start", "wait", "finish"])
def test_an_error_is_raised_by_the_next_call_and_once(call):
    behind = WriteBehind()

    def fail():
        raise OSError(errno.ENOSPC, "No space left on device")

    behind.start(fail)
    with pytest.raises(OSError, match="No space left"):
        behind.start(lambda: None) if call == "start" else getattr(behind, call)()
    behind.finish()
    assert threads() == []


def test_without_a_write_there_is_no_thread():
    behind = WriteBehind()
    behind.wait()
    behind.finish()
    assert threads() == []


class FullDisk(SpoolFolder):
    """A folder whose files take 64 bytes."""

    def open(self):
        file = super().open()

        class Full:
            def __getattr__(self, name):
                return getattr(file, name)

            def __enter__(self):
                return self

            def __exit__(self, *error):
                file.close()

            def write(self, data):
                if file.tell() + len(data) > 64:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return file.write(data)

        self.file = file
        return Full()


@pytest.mark.parametrize("end", ["write", "read", "mapped"])
def test_a_disk_that_fills_up_is_told(end):
    folder = FullDisk()
    array = SpooledArray(folder, (4,), np.dtype(np.float32))
    array.write(np.arange(4), np.ones((4, 4), np.float32))
    array.write(np.arange(4, 8), np.ones((4, 4), np.float32))
    calls = {
        "write": lambda: array.write(np.arange(8, 9), np.ones((1, 4), np.float32)),
        "read": lambda: array.read(np.arange(2)),
        "mapped": lambda: array.mapped(8),
    }
    with pytest.raises(OSError, match="No space left"):
        calls[end]()
    array.close()
    assert folder.file.closed
    assert threads() == []


def test_closing_forgets_what_could_not_be_written():
    folder = FullDisk()
    array = SpooledArray(folder, (4,), np.dtype(np.float32))
    array.write(np.arange(8), np.ones((8, 4), np.float32))
    array.close()
    assert folder.file.closed
    assert threads() == []


def test_what_was_written_is_read_at_once():
    rng = np.random.default_rng(0)
    rows = rng.random((300, 50)).astype(np.float32)
    array, order = SpooledArray(SpoolFolder(), (50,), np.dtype(np.float32)), rng.permutation(300)
    for part in np.array_split(order, 17):
        array.write(part, rows[part])
        assert np.array_equal(array.read(part[::-1]), rows[part[::-1]])
    assert np.array_equal(array.mapped(300), rows)
    assert threads() == []
