"""Whose a temporary folder is, and whether its process is still there."""

from __future__ import annotations

import os
import re
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

# begins with "_": such folders are neither checkpoints to upstream nor part of an upload to the Hub
PREFIX = "_trainplus_saving-"
FOREIGN_SECONDS = 24 * 3600.0

_NAME = re.compile(rf"^{PREFIX}(?P<host>.+)-(?P<pid>\d+)-(?P<started>\d+)$")
# the start of a process is reckoned from the time of boot, which a correction of the clock moves
_CLOCK_SECONDS = 2.0


@dataclass(frozen=True)
class Writer:
    """The process that writes a checkpoint, as the name of its temporary folder tells it.

    Args:
        host: name of its machine.
        pid: its number there.
        started: when it began, in seconds since 1970.

    Example:
        >>> me = Writer.current()
        >>> Writer.of(me.folder_name) == me, Writer.of("checkpoint-12")
        (True, None)
    """

    host: str
    pid: int
    started: int

    @classmethod
    def current(cls) -> Writer:
        """Return this process."""
        host = re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname()) or "host"
        return cls(host, os.getpid(), int(psutil.Process().create_time()))

    @classmethod
    def of(cls, folder_name: str) -> Writer | None:
        """Read the name of a temporary folder; None for any other name."""
        found = _NAME.match(folder_name)
        return None if found is None else cls(found["host"], int(found["pid"]), int(found["started"]))

    @property
    def folder_name(self) -> str:
        """The name of this process's temporary folder."""
        return f"{PREFIX}{self.host}-{self.pid}-{self.started}"

    def is_gone(self, folder: Path, now: float | None = None) -> bool:
        """Say whether nobody writes into ``folder`` any more.

        On this machine the process table says so. Of another machine nothing can be asked: its folder counts as left
        behind when nothing in it has changed for a day.

        Args:
            folder: the temporary folder.
            now: seconds since 1970, for tests.
        """
        here = Writer.current()
        if self.host != here.host:
            return _seconds_since_change(folder, time.time() if now is None else now) > FOREIGN_SECONDS
        return self.pid == here.pid or not self._runs()

    def _runs(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            same = bool(abs(process.create_time() - self.started) <= _CLOCK_SECONDS)
            return same and bool(process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True


def _seconds_since_change(folder: Path, now: float) -> float:
    times = [folder.stat().st_mtime]
    for inner, folders, names in os.walk(folder):
        times += [os.lstat(os.path.join(inner, name)).st_mtime for name in (*folders, *names)]
    return now - max(times)
