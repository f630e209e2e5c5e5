"""A child's exit code is handed on, and so are the signals that the launcher gets."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from hf_trainplus.launch.child import PASSED_ON, Child

WAITS = """
import pathlib, signal, sys, time
def note(number, frame):
    print("told", signal.Signals(number).name, flush=True)
    sys.exit(5)
signal.signal(signal.{name}, note)
pathlib.Path(sys.argv[1]).touch()
time.sleep(60)
"""


def python(code, *arguments):
    return [sys.executable, "-c", code, *map(str, arguments)]


def test_exit_codes_are_handed_on():
    assert Child().run(python("raise SystemExit(0)"), {}) == 0
    assert Child().run(python("raise SystemExit(7)"), {}) == 7
    assert Child().run(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), {}) == 128 + signal.SIGKILL


def test_the_environment_is_added():
    code = "import os, sys; sys.exit(0 if os.environ['TRAINPLUS_STAGE'] == 'a' and 'PATH' in os.environ else 1)"
    assert Child().run(python(code), {"TRAINPLUS_STAGE": "a"}) == 0


@pytest.mark.parametrize("name", [one.name for one in PASSED_ON])
def test_a_signal_is_passed_on_and_the_child_decides(name, tmp_path):
    ready, child, before = tmp_path / "ready", Child(), signal.getsignal(signal.SIGTERM)

    def send():
        while not ready.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), getattr(signal, name))

    sender = threading.Thread(target=send)
    sender.start()
    assert child.run(python(WAITS.format(name=name), ready), {}) == 5
    sender.join()
    assert child.signal.name == name
    assert signal.getsignal(signal.SIGTERM) is before
    # a chain that was told to end starts nobody any more
    assert child.run(python("raise SystemExit(0)"), {}) == 128 + getattr(signal, name)


def test_what_is_ignored_is_not_passed_on(tmp_path):
    """nohup starts a command with SIGHUP ignored."""
    ready = tmp_path / "ready"

    def send():
        while not ready.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        sender, child = threading.Thread(target=send), Child()
        sender.start()
        code = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(0.5)"
        assert (child.run(python(code, ready), {}), child.signal) == (0, None)
        sender.join()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_program_that_is_not_there_is_named():
    with pytest.raises(FileNotFoundError, match="no_such_program"):
        Child().run([str(Path("no_such_program"))], {})
