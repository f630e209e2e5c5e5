"""An error that one rank meets is kept until the point at which all ranks tell each other how they fare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from hf_trainplus.evaluation.ranks import OtherRankError, Ranks
from hf_trainplus.evaluation.windows import LoadedBatch

T = TypeVar("T")

OTHER_RANK_FAILED = "the evaluation failed on another rank, whose own error says why"

_UNREAD = LoadedBatch(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.bool_), None)
_END = object()


class RankErrors:
    """Keeps this rank's error, so that it leaves the evaluation together with the others, which would wait for it.

    It does not talk to other ranks but in ``settle``, and one process alone raises every error where it happens.

    Args:
        ranks: the processes that evaluate together.

    Example:
        >>> errors = RankErrors(Ranks())
        >>> with errors.kept():
        ...     raise KeyError("row 9")
        Traceback (most recent call last):
        KeyError: 'row 9'
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self.own: Exception | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the first error of the context where there are other ranks."""
        try:
            yield
        except Exception as error:
            if self._ranks.size == 1:
                raise
            self.own = self.own or error

    def batches(self, batches: Iterable[LoadedBatch]) -> Iterator[LoadedBatch]:
        """Yield the batches; in place of one that cannot be read, an empty one that must not be run."""
        reading, batch = iter(batches), None
        while batch is not _END:
            batch = None
            with self.kept():
                batch = next(reading, _END)
            if isinstance(batch, LoadedBatch):
                yield batch
            elif batch is None:
                yield _UNREAD

    def raise_own(self) -> None:
        """Raise what was kept, where the caller lets the other ranks know.

        Raises:
            Exception: what was kept.
        """
        if self.own is not None:
            raise self.own

    def settle(self) -> None:
        """Raise on all ranks if anything was kept on any. It is a collective.

        Raises:
            Exception: what was kept on this rank.
            OtherRankError: another rank has kept an error.
        """
        if self._ranks.any(self.own is not None):
            self.raise_own()
            raise OtherRankError(OTHER_RANK_FAILED)


def agreed(compute: Callable[[], T], what: str = "metric function") -> T:
    """Compute something on every rank; an error on one rank is an error on all. It is a collective.

    Args:
        compute: called once on each rank.
        what: names it in the error of the other ranks, e.g. ``"evaluation"``.

    Raises:
        OtherRankError: it failed on another rank.
        Exception: what it raised on this one.
    """
    found: list[T] = []
    own: Exception | None = None
    try:
        found = [compute()]
    except Exception as error:
        own = error
    known = None if own is None or isinstance(own, OtherRankError) else repr(own)
    reasons = [one for one in Ranks.current().gather(known) if one is not None]
    if reasons and known is None:
        raise OtherRankError(f"the {what} failed on another rank: {reasons[0]}") from own
    if own is not None:
        raise own
    return found.pop()
