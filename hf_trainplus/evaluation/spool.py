"""Where an evaluation keeps arrays that are too large for memory: files without a name, in a folder with room."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from io import FileIO
from typing import Any

from hf_trainplus.evaluation.kept_file import KeptFile

VARIABLE = "TRAINPLUS_SPOOL"


class SpoolFolder:
    """Where large arrays are kept on disk; every file is already unlinked when it is handed out.

    The space is given back when the process ends, also after a crash.

    Args:
        path: an existing folder; None for the system's folder for temporary files.
        from_bytes: size up to which an array stays in memory, in bytes.
        free_bytes: returns the free bytes of a folder; passed in by tests.
        kept: keeps a file for the next evaluation; None to keep none.

    Raises:
        ValueError: there is no such folder.

    Example:
        >>> with SpoolFolder().open() as file:
        ...     file.write(b"rows")
        4
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        from_bytes: int = 2**23,
        free_bytes: Callable[[str], int] | None = None,
        kept: KeptFile | None = None,
    ) -> None:
        if path is not None and not os.path.isdir(path):
            raise ValueError(
                f"predictions were to be kept in {path!r}, and there is no such folder; make it, or set {VARIABLE} to "
                "one that is there."
            )
        self.path = path or tempfile.gettempdir()
        self.from_bytes = from_bytes
        self._free_bytes = free_bytes or (lambda folder: shutil.disk_usage(folder).free)
        self._kept = kept or KeptFile(most_bytes=-1)

    def require(self, needed_bytes: int, what: str) -> None:
        """Check that ``needed_bytes`` fit on the disk.

        Raises:
            ValueError: they do not.
        """
        free = self._free_bytes(self.path) + self._kept.size(self.path)
        if needed_bytes > free:
            raise ValueError(
                f"{what} need about {needed_bytes / 2**30:.2f} GiB and {self.path} has {free / 2**30:.2f} GiB free. "
                'Keep less of them, e.g. eval_predictions="argmax" or preprocess_logits_for_metrics=..., or set '
                f"{VARIABLE} to a folder with more room."
            )

    def open(self) -> FileIO:
        """Return a file that no longer has a name; what is written is in it at once.

        It may hold what an earlier evaluation wrote: read only what was written since.
        """
        return self._kept.take(self.path) or tempfile.TemporaryFile(dir=self.path, buffering=0)

    def release(self, file: FileIO, mapped: Any = None) -> None:
        """Take back a file that ``open`` returned, for the next evaluation or to close it.

        Args:
            file: the file.
            mapped: the memory map of it that was handed out; None without one.
        """
        self._kept.keep(file, self.path, mapped)


def spool_folder_from_environment(kept: KeptFile | None = None) -> SpoolFolder:
    """Return the folder for large arrays: ``TRAINPLUS_SPOOL`` when set, else the system's temporary folder.

    Args:
        kept: keeps a file for the next evaluation; None to keep none.

    Raises:
        ValueError: ``TRAINPLUS_SPOOL`` names no folder.
    """
    return SpoolFolder(os.environ.get(VARIABLE) or None, kept=kept)
