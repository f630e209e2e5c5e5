"""This process: how long it runs already, and what tells it from another one."""

from __future__ import annotations

import os
import time

import psutil


def process_age_seconds() -> float:
    """Return the seconds since this process was started by the operating system.

    It does not count a launcher above it (torchrun, accelerate launch), which starts a few seconds earlier. On Linux it
    is right to 10 ms and does not follow a wall clock that is set anew; elsewhere it is as right as the wall clock.

    Example:
        >>> process_age_seconds() > 0
        True
    """
    created = float(psutil.Process().create_time())
    since_boot = getattr(time, "CLOCK_BOOTTIME", None)
    if since_boot is None:
        return max(0.0, time.time() - created)
    # the kernel tells the time of boot in whole seconds: taken out again, it leaves the start in clock ticks since boot
    return max(0.0, time.clock_gettime(since_boot) - (created - float(psutil.boot_time())))


def process_identity() -> str:
    """Return what no other process shares: its number and the time of its start.

    Example:
        >>> process_identity() == process_identity()
        True
    """
    return f"{os.getpid()}@{psutil.Process().create_time():.2f}"
