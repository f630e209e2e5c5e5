"""Listen to the loader inside Accelerate's: there a fetch is a fetch, without copies and without collectives."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Protocol

from accelerate.data_loader import DataLoaderDispatcher
from torch.utils.data import IterableDataset

_MARK = "_trainplus_listeners"


class LoaderListener(Protocol):
    """What is told about each fetch of a training batch."""

    def loader_starts(self) -> None:
        """The loader's iterator is about to be made."""

    def fetch_starts(self) -> None:
        """A batch is about to be asked for."""

    def fetch_ends(self, batch: Any) -> None:
        """The batch is there; None at the end of the data."""


class _Listened:
    """An iterator that tells its listeners; everything else is the inner one's."""

    def __init__(self, inner: Iterator[Any], listeners: list[LoaderListener]) -> None:
        self._inner = inner
        self._listeners = listeners

    def __iter__(self) -> _Listened:
        return self

    def __next__(self) -> Any:
        for listener in self._listeners:
            listener.fetch_starts()
        batch = None
        try:
            batch = next(self._inner)
        finally:
            for listener in self._listeners:
                listener.fetch_ends(batch)
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def listen(loader: Any, listener: LoaderListener) -> bool:
    """Tell ``listener`` about every fetch of a loader that Accelerate prepared.

    Neither the order nor the random state changes: the inner loader makes its own iterator and its own batches.

    Args:
        loader: as ``Accelerator.prepare`` returns it; its ``base_dataloader`` is listened to.
        listener: told until ``stop_listening``; a listener that is there already is not added twice.

    Returns:
        False for a loader without an inner one: nothing can be told about it.
    """
    base = getattr(loader, "base_dataloader", None)
    if base is None:
        return False
    listeners: list[LoaderListener] | None = vars(base).get(_MARK)
    if listeners is None:
        listeners = []
        original = base.__iter__

        def make_iterator() -> _Listened:
            for one in listeners:
                one.loader_starts()
            return _Listened(original(), listeners)

        # Accelerate calls base_dataloader.__iter__() by name, so an attribute of this one object is enough
        base.__iter__ = make_iterator
        setattr(base, _MARK, listeners)
    if listener not in listeners:
        listeners.append(listener)
    return True


def loader_of(iterator: Any) -> Any | None:
    """Return the loader behind an epoch's iterator that has not begun.

    The first epoch after a resume runs over another loader than the one that callbacks are shown.

    Returns:
        None when the iterator is no generator of a loader, or has begun.
    """
    if not inspect.isgenerator(iterator) or inspect.getgeneratorstate(iterator) != inspect.GEN_CREATED:
        return None
    return inspect.getgeneratorlocals(iterator).get("self")


def is_dispatched(loader: Any) -> bool:
    """Tell whether rank 0 alone reads the data and hands every rank its batches, as for streams it does by default.

    There a batch is not there before the slowest rank has come for its own.
    """
    return isinstance(loader, DataLoaderDispatcher) and loader.state.num_processes > 1


def is_stream(loader: Any) -> bool:
    """Tell whether what a resumed run has had must be read again to be skipped."""
    return isinstance(getattr(loader, "dataset", None), IterableDataset)


def skipped_fetches(loader: Any) -> int:
    """Return how many fetches of a resumed epoch read again, of a stream, what the run has had."""
    batches = int(getattr(loader, "skip_batches", 0))
    together = isinstance(loader, DataLoaderDispatcher) and not loader.split_batches
    return batches * loader.state.num_processes if together else batches


def stop_listening(loader: Any, listener: LoaderListener) -> None:
    """Take a listener off; the last one to go puts the loader back as it was."""
    base = getattr(loader, "base_dataloader", None)
    listeners: list[LoaderListener] = [] if base is None else vars(base).get(_MARK, [])
    if listener in listeners:
        listeners.remove(listener)
    if base is not None and _MARK in vars(base) and not listeners:
        del base.__iter__
        delattr(base, _MARK)
