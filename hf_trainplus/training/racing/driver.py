"""Carries out what a race asks for, with the model that is being trained."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from hf_trainplus.decisions.race import Drop, Evaluate, Evaluated, Keep, Kept
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.results import ExampleResults, Int64Array
from hf_trainplus.training.racing.cached_rows import CachedRows
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
        cache: rows that an earlier run has evaluated; None without one.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        evaluate_rows: RowEvaluator,
        weights: CandidateWeights | None,
        *,
        cache: CachedRows | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._evaluate_rows = evaluate_rows
        self._weights = weights
        self._cache = cache
        self._clock = clock
        self._known: dict[int, ExampleResults] = {}
        self.seconds = 0.0
        self.rows_evaluated = 0

    def known(self, checkpoint: int) -> ExampleResults | None:
        """Return all rows that were evaluated for a checkpoint in this process."""
        return self._known.get(checkpoint)

    def learn(self, checkpoint: int, results: ExampleResults) -> None:
        """Take rows that were evaluated before the race began."""
        self._add(checkpoint, results)

    def evaluate(self, command: Evaluate) -> Evaluated:
        """Evaluate rows with the live weights, or with a candidate's and put the live ones back.

        Rows that are known already are not evaluated again: a race may be begun anew on the same checkpoint.
        """
        looked_up = self._look_up(command)
        missing = self._missing(command)
        evaluate_seconds: float | None = 0.0
        load_seconds: float | None = None
        if len(missing):
            results, evaluate_seconds, load_seconds = self._run(command, missing)
            self._add(command.checkpoint, results)
            self.rows_evaluated += len(missing)
            evaluate_seconds = None if looked_up else evaluate_seconds
        known = self._known[command.checkpoint]
        wanted = known.take(np.isin(known.index, command.rows))
        return Evaluated(wanted, evaluate_seconds, load_seconds)

    def _missing(self, command: Evaluate) -> Int64Array:
        before = self._known.get(command.checkpoint)
        return command.rows if before is None else np.setdiff1d(command.rows, before.index)

    def _add(self, checkpoint: int, results: ExampleResults) -> None:
        before = self._known.get(checkpoint)
        self._known[checkpoint] = ExampleResults.concatenate([results] if before is None else [before, results])

    def _look_up(self, command: Evaluate) -> bool:
        """Take rows out of the cache, and say whether there were any."""
        missing = self._missing(command)
        if self._cache is None or not len(missing):
            return False
        found = self._cache.find(command.checkpoint, missing, in_model=command.live)
        if found is not None:
            self._add(command.checkpoint, found)
        return found is not None

    def _run(self, command: Evaluate, rows: Int64Array) -> tuple[ExampleResults, float, float | None]:
        start = self._clock()
        if command.live or self._weights is None:
            results = self._evaluate_rows(rows)
            taken, loading = self._clock() - start, None
            self._keep_rows(command.checkpoint, results)
        else:
            with self._weights.loaded(command.checkpoint):
                loaded = self._clock()
                results = self._evaluate_rows(rows)
                taken = self._clock() - loaded
                kept = self._keep_rows(command.checkpoint, results)
            loading = self._clock() - start - taken - kept
        taken, loading = Ranks.current().from_first((taken, loading))
        self.seconds += taken + (loading or 0.0)
        return results, taken, loading

    def _keep_rows(self, checkpoint: int, results: ExampleResults) -> float:
        """Leave rows to the next run, and return the seconds that it took."""
        start = self._clock()
        if self._cache is not None:
            self._cache.keep(checkpoint, results)
        return self._clock() - start

    def keep(self, command: Keep) -> Kept:
        """Keep the live weights."""
        if self._weights is None:
            return Kept(None)
        seconds = Ranks.current().from_first(self._weights.keep(command.checkpoint))
        self.seconds += seconds
        return Kept(seconds)

    def drop(self, command: Drop) -> None:
        """Forget a candidate's weights; what an older checkpoint on disk still names stays on disk."""
        self._known.pop(command.checkpoint, None)
        if self._weights is not None:
            self._weights.drop(command.checkpoint)

    def forget_except(self, checkpoints: tuple[int, ...]) -> None:
        """Forget the rows of checkpoints that are out."""
        for checkpoint in list(self._known):
            if checkpoint not in checkpoints:
                del self._known[checkpoint]
        if self._cache is not None:
            self._cache.forget_except(checkpoints)
