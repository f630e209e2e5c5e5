"""Whether what a kept loader read from is still what it was: a cheap look, which may answer "not known"."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from hf_trainplus.evaluation.fingerprints.data import is_arrow_dataset
from hf_trainplus.evaluation.fingerprints.kinds import LIBRARY_KINDS
from hf_trainplus.evaluation.fingerprints.objects import ObjectWalk
from hf_trainplus.identity import UnknownIdentityError

MOST_VALUES = 100_000
"""Values that are looked at: measured on one core at most 32 ms, which is what one forked worker costs to restart."""

_BYTES_A_VALUE = 256


@dataclass(frozen=True)
class ContentStamp:
    """What objects consisted of at one moment; equal stamps mean that workers which copied them then hold them still.

    Args:
        text: the fingerprint.
        held: objects that count by their identity, kept alive so that no other one takes it.
    """

    text: str
    held: tuple[Any, ...] = field(compare=False)


def content_stamp(*values: Any, most_values: int = MOST_VALUES) -> ContentStamp | None:
    """Take the stamp of datasets, collators and settings, or None where that is not known or takes too long.

    It reads no row of a dataset that computes them; of such a dataset the object's state and code count. The table of a
    ``datasets.Dataset``, which nobody can change, counts by its identity, its format and transform by their content.
    A model that an object holds makes it unknown, since training changes it; ``DataCollatorForSeq2Seq`` asks its model
    for nothing that changes.

    Args:
        values: any objects.
        most_values: numbers, texts and objects to look at, >= 1; beyond them the answer is None.

    Example:
        >>> rows = [{"labels": 0}]
        >>> before = content_stamp(rows)
        >>> rows[0]["labels"] = 1
        >>> before == content_stamp(rows), content_stamp(rows) == content_stamp(rows)
        (False, True)
    """
    walk = _BoundedWalk(most_values)
    try:
        walk.add(values)
    except Exception:  # whatever an object raises when it is looked at, its content is then not known
        return None
    return ContentStamp(walk.text(), tuple(walk.held))


def live_stamp(dataset: Any, *settings: Any) -> ContentStamp | None:
    """Take the stamp of what a loader without workers has derived from a dataset; the rest it reads as it is now.

    None for all but a ``datasets.Dataset``: of these nothing that is worth keeping has been derived.

    Args:
        dataset: the dataset.
        settings: what the loader was made with, compared by ``repr``.
    """
    if not is_arrow_dataset(dataset):
        return None
    form = dataset.format
    held = (dataset.data, dataset._indices, *form["format_kwargs"].values())
    shown = (form["type"], form["columns"], form["output_all_columns"], sorted(form["format_kwargs"]))
    return ContentStamp(repr(([id(one) for one in held], shown, settings)), held)


class _BoundedWalk(ObjectWalk):
    """A walk that gives up in place of taking long."""

    def __init__(self, most_values: int) -> None:
        super().__init__((_model, self._sized, self._arrow, *LIBRARY_KINDS))
        self._left = most_values
        self.held: list[Any] = []

    def add(self, value: Any) -> None:
        self._spend(1 + (len(value) if type(value) in (list, tuple, dict, set, frozenset) else 0))
        super().add(value)

    def _spend(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise UnknownIdentityError("it holds too much to be looked through")

    def _sized(self, value: Any) -> Any:
        if isinstance(value, np.ndarray | torch.Tensor):
            self._spend(value.nbytes // _BYTES_A_VALUE)
        return None

    def _arrow(self, value: Any) -> Any:
        if not is_arrow_dataset(value):
            return None
        form = value.format
        self.held += [value.data, value._indices]
        return ("arrow", id(value.data), id(value._indices), dict(sorted(form.items())))


def _model(value: Any) -> Any:
    if isinstance(value, torch.nn.Module):
        raise UnknownIdentityError("it holds a model, whose weights may change")
    if type(value).__module__.startswith("transformers.") and type(value).__name__ == "DataCollatorForSeq2Seq":
        kept = {name: content for name, content in sorted(vars(value).items()) if name != "model"}
        return ("collator", type(value), kept, getattr(value.model, "config", None))
    return None
