"""Know from another thread whether training still runs, also when an exception ended it and nobody said so."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

_OURS = ("hf_trainplus.", "transformers.trainer_callback")


def watch_caller() -> Callable[[], bool]:
    """Remember who called the callbacks, and return a question: is that call still on its thread's stack?

    Upstream tells callbacks nothing when ``train`` ends by an exception or a Ctrl-C that somebody catches (a
    notebook); the stack knows. The frame, and with it what its function holds, is kept until the answer is no: its
    address alone would soon be another one's. Drop the question when it is no longer asked.

    Returns:
        A function for any thread: True while the calling function has not returned.

    Example:
        >>> def train():
        ...     return watch_caller()
        >>> alive = train()
        >>> alive()        # watched is the caller outside this package: this doctest
        True
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(_OURS):
        frame = frame.f_back
    thread, watched = threading.get_ident(), [frame]

    def alive() -> bool:
        current = sys._current_frames().get(thread)
        while current is not None and watched:
            if current is watched[0]:
                return True
            current = current.f_back
        watched.clear()
        return False

    return alive
