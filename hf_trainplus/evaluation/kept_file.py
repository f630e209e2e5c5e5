"""A file without a name that waits for the next evaluation, so that the system need not hand out its pages again."""

from __future__ import annotations

import os
import weakref
from io import FileIO
from typing import Any

MOST_BYTES = 2**31


class KeptFile:
    """Keeps at most one file between two evaluations of the same rows; it goes with this object, or with the process.

    A page of the system's cache that is handed out for the first time can cost as much as computing what is written
    into it. A file is handed out again only when nobody holds the map of what an earlier evaluation wrote there: an
    array that somebody has kept never changes.

    Args:
        most_bytes: size up to which a file is kept, in bytes.

    Example:
        >>> import tempfile
        >>> kept, file = KeptFile(), tempfile.TemporaryFile(buffering=0)
        >>> kept.keep(file, "/tmp", None)
        >>> kept.take("/elsewhere") is None
        True
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._files: list[FileIO] = []  # none or one
        self._folder: str | None = None
        self._map: Any = None
        weakref.finalize(self, _close_all, self._files)

    def keep(self, file: FileIO, folder: str, mapped: Any) -> None:
        """Take a file over: keep it in place of a smaller one, or close it.

        Args:
            file: the file, without a name.
            folder: where it lies.
            mapped: the memory map of it that was handed out; None without one.
        """
        size = os.fstat(file.fileno()).st_size
        if size > self._most_bytes or (self._files and size < os.fstat(self._files[0].fileno()).st_size):
            file.close()
            return
        self.drop()
        self._files.append(file)
        self._folder, self._map = folder, None if mapped is None else weakref.ref(mapped)

    def take(self, folder: str) -> FileIO | None:
        """Hand the kept file out, with what it held before; None where there is none for the folder."""
        if not self.size(folder):
            self.drop()
            return None
        return self._files.pop()

    def size(self, folder: str) -> int:
        """Return the bytes on the disk that ``take`` would hand out, 0 for none."""
        is_held = self._map is not None and self._map() is not None
        if not self._files or self._folder != folder or is_held:
            return 0
        return os.fstat(self._files[0].fileno()).st_size

    def drop(self) -> None:
        """Give the disk space back."""
        _close_all(self._files)


def _close_all(files: list[FileIO]) -> None:
    while files:
        files.pop().close()
