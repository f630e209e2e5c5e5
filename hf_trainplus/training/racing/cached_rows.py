"""Rows of a race's checkpoints that an earlier run has evaluated, and those that this one leaves to the next."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hf_trainplus.results import ExampleResults, Int64Array
from hf_trainplus.training.cached import CachedEvaluations, Recognised

if TYPE_CHECKING:
    from hf_trainplus.training.request import Request


class CachedRows:
    """The evaluation cache row by row: a race asks for some rows of a checkpoint now and for more of them later.

    It loads no weights: a candidate is looked up by what it was recognised as while its weights were in the model.
    All ranks call it alike.

    Args:
        cached: the trainer's evaluation cache.
        request: what the race evaluates; its rows do not count.
    """

    def __init__(self, cached: CachedEvaluations, request: Request) -> None:
        self._cached = cached
        self._request = request
        self._recognised: dict[int, Recognised | None] = {}

    def find(self, checkpoint: int, rows: Int64Array, *, in_model: bool) -> ExampleResults | None:
        """Return those of the rows that are known; None when none of them is.

        Args:
            checkpoint: whose results.
            rows: (n,) positions in the evaluation set.
            in_model: whether its weights are in the model now.
        """
        recognised = self._recognise(checkpoint, in_model=in_model)
        entry = None if recognised is None else self._cached.entry(recognised)
        if entry is None:
            return None
        known = entry.take(np.isin(entry.index, rows))
        return replace(known, identity=None) if len(known) else None

    def keep(self, checkpoint: int, results: ExampleResults) -> None:
        """Keep rows that were evaluated with the weights that are in the model now."""
        recognised = self._recognise(checkpoint, in_model=True)
        if recognised is not None:
            self._recognised[checkpoint] = self._cached.keep_rows(self._request, recognised, results)

    def forget_except(self, checkpoints: tuple[int, ...]) -> None:
        """Forget what checkpoints that are out were recognised as."""
        self._recognised = {key: value for key, value in self._recognised.items() if key in checkpoints}

    def _recognise(self, checkpoint: int, *, in_model: bool) -> Recognised | None:
        if checkpoint not in self._recognised and in_model:
            self._recognised[checkpoint] = self._cached.recognise(self._request)
        return self._recognised.get(checkpoint)
