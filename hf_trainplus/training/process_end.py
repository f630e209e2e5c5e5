"""The end of a process that talked to other ranks through gloo."""

from __future__ import annotations

import atexit
import time

import torch

_SECONDS = 0.2
"""Far more than a thread needs to be given the interpreter's lock, which it holds for microseconds."""


def let_gloo_threads_finish() -> None:
    """Make this process, at its end, wait a moment for gloo's threads; does nothing without another rank.

    A thread of gloo frees the tensors of the last collective after the main thread has its result. If it asks for the
    interpreter's lock while the interpreter ends, Python 3.11 ends the thread, C++ takes that for an error and aborts
    the process: signal 6 after all results are out. It is seen with torch 2.13 in one run of ten on a busy machine.
    Groups for the host exist beside NCCL's too, so the backend is not asked.
    """
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        atexit.unregister(_wait)
        atexit.register(_wait)


def _wait() -> None:
    time.sleep(_SECONDS)
