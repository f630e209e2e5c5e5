"""One child process: started, told of the signals that the launcher gets, and waited for."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

import psutil

from hf_trainplus.launch.command import starts_others

# a closed terminal and Ctrl-\ too: the child's own process group is not told of them, and would go on alone
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGQUIT)


class Child:
    """Runs a command to its end; a signal to this process is passed on, and the child decides what it does.

    Of a launcher (``accelerate launch``, ``torchrun``) the processes that train are told, not the launcher: it would
    end with an error at the signal, at once or after half a minute, and some leave their processes behind. It ends when
    they do.

    It does not restart a child, and it does not kill one: a child that ignores a signal is waited for. A second
    Ctrl-C of a terminal reaches the child from here too, since the child has a process group of its own.

    Example:
        >>> Child().run(["python", "-c", "raise SystemExit(3)"], {})
        3
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_launcher = False

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Return the child's exit code; 128 plus its number when a signal ended it, as a shell says it.

        Args:
            command: program and arguments.
            environment: added to this process's own.

        Raises:
            FileNotFoundError: there is no such program.
        """
        with self._handlers():
            if self.signal is not None:
                return 128 + self.signal
            self._is_launcher = starts_others(command)
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command line
                list(command), env={**os.environ, **environment}, start_new_session=True
            )
            code = self._process.wait()
            self._process = None
        return 128 - code if code < 0 else code

    @contextmanager
    def _handlers(self) -> Iterator[None]:
        # what is ignored stays so: that is how nohup keeps a command alive
        heard = [one for one in PASSED_ON if signal.getsignal(one) is not signal.SIG_IGN]
        before = {one: signal.signal(one, self._pass_on) for one in heard}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        if self._process is None or self._process.poll() is not None:
            return
        workers = self._workers() if self._is_launcher else []
        for process in workers:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        if not workers:
            # a launcher that has started nobody yet ends at any of them, and knows SIGTERM
            self._process.send_signal(signal.SIGTERM if self._is_launcher else number)

    def _workers(self) -> list[psutil.Process]:
        """Return the processes that a launcher has started."""
        try:
            return psutil.Process(self._process.pid).children() if self._process is not None else []
        except psutil.NoSuchProcess:
            return []
