"""Signals as a stop condition: handlers are set, chained and put back."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, TracebackType
from typing import Any

from hf_trainplus.budget.stops import Moment, StopCondition, StopReason

logger = logging.getLogger(__name__)

DEFAULT_SIGNALS = "SIGTERM,SIGUSR1"

_told_thread = False


def parse_signals(given: str | Iterable[str] | None) -> tuple[signal.Signals, ...]:
    """Read names of signals.

    Raises:
        ValueError: a name that this machine does not have, or a signal that cannot be caught.

    Example:
        >>> [one.name for one in parse_signals("SIGTERM, usr1")], parse_signals(None)
        (['SIGTERM', 'SIGUSR1'], ())
    """
    names = given.split(",") if isinstance(given, str) else list(given or ())
    found = []
    for name in (str(name).strip().upper() for name in names):
        if not name:
            continue
        full = name if name.startswith("SIG") else f"SIG{name}"
        number = signal.Signals.__members__.get(full)
        if number is None or full in ("SIGKILL", "SIGSTOP"):
            raise ValueError(
                f"stop signal {name!r} is unknown here or cannot be caught; allowed are names such as SIGTERM, "
                f"SIGUSR1, SIGUSR2, SIGHUP, SIGINT. Write stop_signals='{DEFAULT_SIGNALS}'."
            )
        found.append(number)
    return tuple(dict.fromkeys(found))


class SignalStop(StopCondition):
    """Remembers that a signal came, and asks to stop at the next boundary.

    It does not save, and it interrupts nothing but what runs inside ``raising``. Handlers that were there before are
    called too, and are put back by ``restore``. Off the main thread Python sets no handlers: then nothing is watched,
    which is said once.

    Args:
        signals: names (``"SIGTERM,SIGUSR1"``) or numbers of signals.
        scope: code object of the function that must be running for a signal to be held back, e.g.
            ``Trainer.train.__code__``. When it is not on the stack (training ended by an exception, which no callback
            hears of), the signal does what it did before. None holds signals back until ``restore``.

    Raises:
        ValueError: an unknown signal.

    Example:
        >>> with SignalStop("SIGUSR1") as condition:
        ...     signal.raise_signal(signal.SIGUSR1)
        ...     condition.check(Moment()).value
        'signal'
    """

    def __init__(self, signals: str | Iterable[str] | None = DEFAULT_SIGNALS, *, scope: CodeType | None = None) -> None:
        self.signals = parse_signals(signals)
        self.scope = scope
        self.received: signal.Signals | None = None
        self._earlier: dict[signal.Signals, Any] = {}
        self._active = False
        self._error: Callable[[], Exception] | None = None

    def install(self) -> SignalStop:
        """Set the handlers; a second call does nothing."""
        global _told_thread
        if self._active or not self.signals:
            return self
        if threading.current_thread() is not threading.main_thread():
            if not _told_thread:
                logger.warning(
                    "Stop signals %s are not watched: training runs off the main thread, where Python sets no "
                    "handlers. Use a stop file or a deadline there.",
                    ", ".join(one.name for one in self.signals),
                )
            _told_thread = True
            return self
        self.received = None
        self._active = True
        for one in self.signals:
            earlier = _past_stale(signal.signal(one, self._handle), one)
            # still ours below another one from an earlier session: keep what was before us
            if earlier != self._handle:
                self._earlier[one] = earlier
        return self

    def restore(self) -> None:
        """Put the earlier handlers back, except where someone set another one over ours in the meantime."""
        if not self._active or threading.current_thread() is not threading.main_thread():
            return
        self._active = False
        for one, earlier in self._earlier.items():
            # == and not `is`: every access to a method makes a new object
            if signal.getsignal(one) == self._handle:
                signal.signal(one, signal.SIG_DFL if earlier is None else earlier)

    def check(self, moment: Moment) -> StopReason | None:
        """Return ``SIGNAL`` once one of the signals has come."""
        return StopReason.SIGNAL if self.received else None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        one = signal.Signals(number)
        earlier = self._earlier.get(one, signal.SIG_DFL)
        if self._active and self._in_scope(frame):
            self.received = one
            if callable(earlier):
                earlier(number, frame)
            self._interrupt()
            return
        if callable(earlier):
            earlier(number, frame)
        elif earlier is not signal.SIG_IGN:
            signal.signal(one, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    @contextmanager
    def raising(self, error: Callable[[], Exception]) -> Iterator[None]:
        """Inside the context a signal raises an error, once; one that came before raises it at the beginning.

        Args:
            error: makes the error.

        Example:
            >>> with SignalStop("SIGUSR1") as condition, condition.raising(lambda: TimeoutError("left")):
            ...     signal.raise_signal(signal.SIGUSR1)
            Traceback (most recent call last):
            TimeoutError: left
        """
        self._error = error
        try:
            if self.received:
                self._interrupt()
            yield
        finally:
            self._error = None

    def _interrupt(self) -> None:
        # cleared first: a signal that comes while the context ends must not leave it set
        error, self._error = self._error, None
        if error is not None:
            raise error()

    def stale(self) -> bool:
        """True when what the handlers were set for does not run: they were left behind by an exception."""
        return not self._active or not self._in_scope(sys._getframe())

    def before(self, one: signal.Signals) -> Any:
        """Return the handler that was there before."""
        return self._earlier.get(one, signal.SIG_DFL)

    def _in_scope(self, frame: FrameType | None) -> bool:
        if self.scope is None:
            return True
        while frame is not None:
            if frame.f_code is self.scope:
                return True
            frame = frame.f_back
        return False

    def __enter__(self) -> SignalStop:
        return self.install()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.restore()


def _past_stale(handler: Any, one: signal.Signals) -> Any:
    """Return the handler below those that an earlier training left behind; called, they would end the process."""
    owner = getattr(handler, "__self__", None)
    while isinstance(owner, SignalStop) and owner.stale():
        handler = owner.before(one)
        owner = getattr(handler, "__self__", None)
    return handler
