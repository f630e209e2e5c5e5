"""The loaders that a trainer keeps from one evaluation to the next, for as long as what they read is unchanged."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hf_trainplus import _upstream as upstream
from hf_trainplus.evaluation.fingerprints.freshness import ContentStamp, content_stamp, live_stamp
from hf_trainplus.evaluation.fingerprints.libraries import library_of
from hf_trainplus.evaluation.tasks import LoaderSettings
from hf_trainplus.training.source import EvaluationSource

if TYPE_CHECKING:
    from transformers import Trainer

KEPT_LOADERS = 8

Made = TypeVar("Made")


@dataclass(frozen=True)
class _Kept(Generic[Made]):
    source: Any
    stamp: ContentStamp | None
    made: Made


class KeptLoaders(Generic[Made]):
    """Keeps one loader a dataset, and makes it anew when the dataset, the collator or the arguments have changed.

    Worker processes hold a copy of the dataset and of the collator as these were when they started. They are kept while
    a bounded look at both (``content_stamp``) says that nothing has changed, and restarted where it says otherwise or
    cannot know: rows that are too many to look through, a collator that reads files or holds a model. One forked worker
    was measured at 20 ms to start and 12 ms to end, which upstream spends at every evaluation. Without workers rows are
    read as they are now, so that only what was derived from a ``datasets.Dataset`` is kept.

    Args:
        trainer: its arguments, collator and column rules count.
        close: ends a loader and its workers.
        ours: the classes whose methods are not somebody else's overrides.
    """

    def __init__(self, trainer: Trainer, close: Callable[[Made], None], *ours: type) -> None:
        self._trainer = trainer
        self._close = close
        self._ours = ours
        self._kept: OrderedDict[tuple[int, str], _Kept[Made]] = OrderedDict()

    def get(self, source: EvaluationSource, settings: LoaderSettings, make: Callable[[], Made], *also: Any) -> Made:
        """Return the dataset's loader; it is made when there is none that still reads what is to be evaluated.

        Args:
            source: the dataset.
            settings: how rows are read.
            make: makes a loader.
            also: what else the loader is made with.
        """
        key = _key(source)
        kept = self._kept.pop(key, None)
        # what could not be looked through once is not tried again
        known = kept is None or kept.stamp is not None
        stamp = self._stamp(source.dataset, settings, also) if known else None
        if kept is not None and (stamp is None or stamp != kept.stamp):
            self._close(kept.made)
            kept = None
        # the dataset itself is kept too, so that its id cannot come to stand for another one
        self._kept[key] = kept = kept or _Kept(source.dataset, stamp, make())
        while len(self._kept) > KEPT_LOADERS:
            self._close(self._kept.popitem(last=False)[1].made)
        return kept.made

    def find(self, source: EvaluationSource) -> Made | None:
        """Return the loader that the dataset was last read with, or None."""
        kept = self._kept.get(_key(source))
        return None if kept is None else kept.made

    def close(self) -> None:
        """Close every kept loader and its workers."""
        for kept in self._kept.values():
            self._close(kept.made)
        self._kept.clear()

    def _stamp(self, dataset: Any, settings: LoaderSettings, also: tuple[Any, ...]) -> ContentStamp | None:
        trainer = self._trainer
        if any(self._is_users(name) for name in upstream.COLUMN_METHODS):
            return None
        columns = (trainer.args.remove_unused_columns, list(trainer.label_names or ()))
        read = (settings.num_workers, settings.pin_memory, settings.prefetch_factor, settings.multiprocessing_context)
        if settings.num_workers:
            return content_stamp(dataset, trainer.data_collator, columns, read, also)
        return live_stamp(dataset, id(trainer.data_collator), columns, read, also)

    def _is_users(self, name: str) -> bool:
        """Say whether somebody's own method chooses the columns, by what nobody knows; libraries' rules stand still."""
        if not upstream.overrides(self._trainer, name, *self._ours):
            return False
        return library_of(str(getattr(getattr(self._trainer, name), "__module__", ""))) is None


def _key(source: EvaluationSource) -> tuple[int, str]:
    return id(source.dataset), source.description
