"""Gives memory that was freed back to the system, where the C library keeps it."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any


@cache
def _malloc_trim() -> Any:
    if sys.platform != "linux":
        return None
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):  # another C library than GNU's
        return None


def return_freed_memory() -> bool:
    """Give freed memory back; it frees nothing, and changes nothing that is in use.

    Logits of a batch (tens of MB) lie on the heap of glibc, and the few bytes that are kept of each batch settle in the
    gaps that they leave: the next batch's no longer fit there, and resident memory grows batch by batch.

    Returns:
        Whether the system has such a call.

    Example:
        >>> return_freed_memory() in (True, False)
        True
    """
    trim = _malloc_trim()
    if trim is None:
        return False
    trim(0)
    return True
