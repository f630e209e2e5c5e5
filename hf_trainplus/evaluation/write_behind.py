"""One write to a file at a time, beside whatever the caller computes meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class WriteBehind:
    """Runs writes in their order in a thread of its own, and never has more than one that waits.

    A page of the system's cache that was never used costs as much as a batch of a small model: the next batch is
    computed meanwhile. An error is raised by the next call. It copies nothing: what is written must not change until
    then.

    Example:
        >>> written = []
        >>> behind = WriteBehind()
        >>> behind.start(lambda: written.append(1))
        >>> behind.finish()
        >>> written
        [1]
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Wait for the write before, and start this one.

        Raises:
            OSError: the write before has failed.
        """
        self.wait()
        self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="spool-predictions")
        self._running = self._thread.submit(write)

    def wait(self) -> None:
        """Wait until everything is written.

        Raises:
            OSError: a write has failed.
        """
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def finish(self) -> None:
        """Wait until everything is written, and end the thread.

        Raises:
            OSError: a write has failed.
        """
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None
