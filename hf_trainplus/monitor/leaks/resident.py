"""The memory of this process that nobody could take back: without the pages of mapped files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

_OWN = ("RssAnon:", "RssShmem:")


def own_resident_bytes(resident: Callable[[], float], *, status: str = "/proc/self/status") -> float:
    """Return the resident bytes of this process without those of mapped files.

    A data set in Arrow files is mapped: its pages count as resident once they are read, so that a first epoch looks
    like a leak, and the system drops them when it needs the room. Shared memory (the workers' batches) is kept in.

    Args:
        resident: returns all resident bytes, for systems that do not tell the kinds apart.
        status: Linux's file of this process; the kinds are there since 4.5 (man 5 proc).

    Returns:
        Bytes, >= 0.

    Example:
        >>> own_resident_bytes(lambda: 7.0, status="/no/such/file")
        7.0
    """
    try:
        lines = Path(status).read_text(encoding="utf-8").splitlines()
    except OSError:
        return resident()
    kib = [float(line.split()[1]) for line in lines if line.startswith(_OWN)]
    return 1024.0 * sum(kib) if len(kib) == len(_OWN) else resident()
