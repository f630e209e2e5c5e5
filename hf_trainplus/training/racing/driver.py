"""Carries out what a race asks for, with the model that is being trained."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from hf_trainplus.decisions.race import Drop, Evaluate, Evaluated, Keep, Kept
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.results import ExampleResults, Int64Array
from hf_trainplus.training.racing.weights import CandidateWeights


class RowEvaluator(Protocol):
    """Evaluates rows of the evaluation set with the weights that are in the model now."""

    def __call__(self, rows: Int64Array) -> ExampleResults:
        """Return one row of results for each row asked for, alike on all ranks."""


class LiveDriver:
    """The race's driver in a training run; times are rank 0's, so that ranks decide alike.

    Args:
        evaluate_rows: evaluates rows with the live weights.
        weights: keeps and loads candidates; None where weights are sharded and only live ones can be evaluated.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        evaluate_rows: RowEvaluator,
        weights: CandidateWeights | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._evaluate_rows = evaluate_rows
        self._weights = weights
        self._clock = clock
        self.parts: dict[int, list[ExampleResults]] = {}
        self.seconds = 0.0

    def evaluate(self, command: Evaluate) -> Evaluated:
        """Evaluate rows with the live weights, or with a candidate's and put the live ones back."""
        start = self._clock()
        if command.live or self._weights is None:
            results = self._evaluate_rows(command.rows)
            evaluated = self._clock()
            loading: float | None = None
        else:
            with self._weights.loaded(command.checkpoint):
                loaded = self._clock()
                results = self._evaluate_rows(command.rows)
                evaluated = self._clock()
            loading = self._clock() - evaluated + loaded - start
            start = loaded
        self.parts.setdefault(command.checkpoint, []).append(results)
        taken, loading = Ranks.current().from_first((evaluated - start, loading))
        self.seconds += taken + (loading or 0.0)
        return Evaluated(results, taken, loading)

    def keep(self, command: Keep) -> Kept:
        """Keep the live weights."""
        if self._weights is None:
            return Kept(None)
        seconds = Ranks.current().from_first(self._weights.keep(command.checkpoint))
        self.seconds += seconds
        return Kept(seconds)

    def drop(self, command: Drop) -> None:
        """Forget a candidate's weights; what an older checkpoint on disk still names stays on disk."""
        self.parts.pop(command.checkpoint, None)
        if self._weights is not None:
            self._weights.drop(command.checkpoint)
