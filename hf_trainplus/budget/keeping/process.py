"""This process: how long it runs already, and what tells it from another one."""

from __future__ import annotations

import os
import time

import psutil


def process_age_seconds() -> float:
    """Return the seconds since this process was started by the operating system.

    It does not count a launcher above it (torchrun, accelerate launch), which starts a few seconds earlier.

    Example:
        >>> process_age_seconds() > 0
        True
    """
    return max(0.0, time.time() - float(psutil.Process().create_time()))


def process_identity() -> str:
    """Return what no other process shares: its number and the time of its start.

    Example:
        >>> process_identity() == process_identity()
        True
    """
    return f"{os.getpid()}@{psutil.Process().create_time():.2f}"
