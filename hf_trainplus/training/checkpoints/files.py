"""Writes that reach the disk: a file appears whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

# what file systems answer that cannot flush a folder, or a file opened for reading
_CANNOT_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EROFS)


def sync_path(path: str | Path) -> None:
    """Flush a file or a folder to the disk; a file system that cannot do so is left alone.

    Raises:
        OSError: the file is missing, or the disk reports an error.
    """
    if os.name == "nt" and os.path.isdir(path):  # Windows opens no folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_FLUSH:
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: str | Path) -> None:
    """Flush every file of a folder and the folders themselves, the outermost last."""
    for inner, _, names in os.walk(folder, topdown=False):
        for name in names:
            sync_path(os.path.join(inner, name))
        sync_path(inner)


def replace_text(path: str | Path, text: str) -> None:
    """Write a text file that appears whole: under another name first, flushed, then renamed."""
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_path(os.path.dirname(os.path.abspath(path)))


def link_or_copy(source: str, target: str) -> str:
    """Give a file a second name, or copy it where the file system has no such names; return the target."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def sizes(folder: str | Path) -> dict[str, int]:
    """Return the size in bytes of every file below a folder, by its path with forward slashes.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.txt").write_text("three")
        >>> sizes(folder)
        {'a.txt': 5}
    """
    found: dict[str, int] = {}
    for inner, _, names in os.walk(folder):
        for name in names:
            path = Path(inner, name)
            found[path.relative_to(folder).as_posix()] = path.stat().st_size
    return dict(sorted(found.items()))
