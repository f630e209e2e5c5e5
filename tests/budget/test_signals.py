"""Signals: caught, chained, put back; and left alone off the main thread."""

import logging
import os
import signal
import subprocess
import sys
import threading

import pytest

from hf_trainplus.budget import signals
from hf_trainplus.budget.signals import SignalStop, parse_signals
from hf_trainplus.budget.stops import Moment, StopReason


@pytest.fixture(autouse=True)
def _handlers_are_put_back():
    # a training that raised in an earlier test of this process has left its own, which do what was done before
    found = {one: signal.signal(one, signal.SIG_DFL) for one in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)}
    yield
    after = {one: signal.getsignal(one) for one in found}
    for one, handler in found.items():
        signal.signal(one, handler)
    assert set(after.values()) == {signal.SIG_DFL}, "a test left a handler behind"


def test_a_signal_is_remembered():
    with SignalStop("SIGTERM,SIGUSR1") as condition:
        assert condition.check(Moment()) is None
        signal.raise_signal(signal.SIGTERM)
        assert condition.check(Moment()) is StopReason.SIGNAL
        assert condition.received is signal.SIGTERM


def test_the_earlier_handler_is_called_and_put_back():
    heard = []

    def earlier(number, frame):
        heard.append(number)

    signal.signal(signal.SIGUSR1, earlier)
    with SignalStop("SIGUSR1") as condition:
        signal.raise_signal(signal.SIGUSR1)
    assert heard == [signal.SIGUSR1]
    assert condition.received is signal.SIGUSR1
    assert signal.getsignal(signal.SIGUSR1) is earlier
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_a_handler_set_over_ours_is_left_in_place_and_may_chain():
    heard = []
    condition = SignalStop("SIGUSR1").install()
    ours = signal.getsignal(signal.SIGUSR1)

    def later(number, frame):
        heard.append(number)
        ours(number, frame)

    signal.signal(signal.SIGUSR1, later)
    signal.raise_signal(signal.SIGUSR1)
    assert condition.received is signal.SIGUSR1
    condition.restore()
    assert signal.getsignal(signal.SIGUSR1) is later
    assert heard == [signal.SIGUSR1]
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_installing_twice_and_restoring_twice_do_nothing_more():
    condition = SignalStop("SIGUSR1")
    condition.install().install()
    condition.restore()
    condition.restore()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_a_new_session_forgets_the_signal_of_the_last():
    condition = SignalStop("SIGUSR1")
    with condition:
        signal.raise_signal(signal.SIGUSR1)
    with condition:
        assert condition.check(Moment()) is None


def test_outside_its_scope_a_signal_does_what_it_did_before():
    heard = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    earlier = signal.getsignal(signal.SIGUSR1)

    def train():
        signal.raise_signal(signal.SIGUSR1)

    condition = SignalStop("SIGUSR1", scope=train.__code__).install()
    signal.raise_signal(signal.SIGUSR1)
    assert condition.received is None
    train()
    assert condition.received is signal.SIGUSR1
    assert len(heard) == 2
    condition.restore()
    assert signal.getsignal(signal.SIGUSR1) is earlier
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_after_training_that_raised_sigterm_still_ends_the_process():
    code = """
import os, signal
from hf_trainplus.budget.signals import SignalStop
def train():
    raise ValueError
SignalStop("SIGTERM", scope=train.__code__).install()
try:
    train()
except ValueError:
    pass
os.kill(os.getpid(), signal.SIGTERM)
print("still here")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == -signal.SIGTERM
    assert "still here" not in done.stdout


def test_handlers_left_behind_by_an_exception_do_not_end_a_later_training():
    def train(condition):
        condition.install()
        raise ValueError

    def train_again(condition):
        condition.install()
        signal.raise_signal(signal.SIGUSR1)

    left_behind = SignalStop("SIGUSR1", scope=train.__code__)
    with pytest.raises(ValueError):  # noqa: PT011 - raised three lines above
        train(left_behind)
    condition = SignalStop("SIGUSR1", scope=train_again.__code__)
    train_again(condition)
    assert (condition.received, left_behind.received) == (signal.SIGUSR1, None)
    condition.restore()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_off_the_main_thread_nothing_is_set_and_that_is_said_once(caplog, monkeypatch):
    monkeypatch.setattr(signals, "_told_thread", False)
    before = signal.getsignal(signal.SIGTERM)
    found = []

    def work():
        for _ in range(2):
            with SignalStop("SIGTERM") as condition:
                found.append((signal.getsignal(signal.SIGTERM), condition.check(Moment())))

    with caplog.at_level(logging.WARNING):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [(before, None)] * 2
    told = [record.message for record in caplog.records if "not watched" in record.message]
    assert len(told) == 1
    assert "SIGTERM" in told[0]


def send_twice_inside(condition):
    with condition.raising(lambda: TimeoutError("left")):
        try:
            signal.raise_signal(signal.SIGUSR1)
        finally:
            signal.raise_signal(signal.SIGUSR1)


def test_a_signal_raises_inside_the_context_alone_and_once():
    with SignalStop("SIGUSR1") as condition:
        with pytest.raises(TimeoutError, match="left"):
            send_twice_inside(condition)
        signal.raise_signal(signal.SIGUSR1)
        assert condition.check(Moment()) is StopReason.SIGNAL


def test_a_signal_that_came_before_raises_at_the_beginning():
    with SignalStop("SIGUSR1") as condition:
        signal.raise_signal(signal.SIGUSR1)
        with pytest.raises(TimeoutError, match="left"), condition.raising(lambda: TimeoutError("left")):
            pytest.fail("it was to be left before")


def test_no_signals_set_nothing():
    with SignalStop(None) as condition:
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert condition.signals == ()


def test_names_are_read_in_any_spelling():
    assert parse_signals(" sigterm ,USR1,SIGTERM,") == (signal.SIGTERM, signal.SIGUSR1)
    assert parse_signals(["HUP"]) == (signal.SIGHUP,)


@pytest.mark.parametrize("given", ["SIGNOPE", "SIGKILL", "STOP", "SIGTERM,15"])
def test_unknown_signals_are_refused(given):
    with pytest.raises(ValueError, match="is unknown here or cannot be caught; allowed are names such as SIGTERM"):
        parse_signals(given)
