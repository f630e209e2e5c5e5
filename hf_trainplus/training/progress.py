"""How far an evaluation has come: examples, tokens a second, seconds left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from hf_trainplus.evaluation.batching import BatchPlan


@dataclass(frozen=True)
class ProgressReading:
    """One look at a pass over the rows.

    Args:
        examples: rows done on all ranks; those of other ranks are taken to be as far as this one's.
        examples_total: rows of the pass, or None for a stream.
        tokens_per_second: on all ranks, taken alike; None before the first batch and for rows without tokens.
        seconds_left: by tokens where all lengths are known, else by rows; None where neither is.
    """

    examples: int
    examples_total: int | None
    tokens_per_second: float | None
    seconds_left: float | None


class EvaluationProgress:
    """Counts one pass of this rank; it draws nothing and talks to no other rank.

    Args:
        name: what is being done, e.g. "Evaluating".
        total: rows on all ranks, >= 0; None when unknown.
        ranks: processes that share the rows, >= 1.
        clock: seconds, monotonic.

    Example:
        >>> ticks = iter([0.0, 2.0])
        >>> progress = EvaluationProgress("Evaluating", 8, clock=lambda: next(ticks))
        >>> progress.load(2, tokens=30)
        >>> progress.done(2)
        >>> progress.reading()
        ProgressReading(examples=2, examples_total=8, tokens_per_second=15.0, seconds_left=6.0)
    """

    def __init__(
        self, name: str, total: int | None, *, ranks: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._total = total
        self._ranks = ranks
        self._clock = clock
        self._started = clock()
        self._own_rows: float | None = None if total is None else total / ranks
        self._own_tokens: int | None = None
        self._lengths: npt.NDArray[np.int64] | None = None
        self._rows = self._loaded_rows = self._loaded_tokens = 0

    def expect(self, plan: BatchPlan, lengths: npt.NDArray[np.int64] | None) -> None:
        """Take in this rank's share, and the length of each row of the dataset where it is known."""
        self._own_rows, self._lengths = plan.row_count, lengths
        if lengths is not None:
            real = zip(plan.batches, plan.real, strict=True)
            self._own_tokens = sum(int(lengths[batch[kept]].sum()) for batch, kept in real)

    def load(self, rows: int, *, tokens: int) -> None:
        """Count a batch that goes to the model now."""
        self._loaded_rows += rows
        self._loaded_tokens += tokens

    def load_batch(self, positions: npt.NDArray[np.int64], real: npt.NDArray[np.bool_], inputs: Any) -> None:
        """Count a batch by the lengths of its rows, or else by what it holds."""
        lengths = self._lengths
        tokens = tokens_of(inputs) if lengths is None else int(lengths[positions[real]].sum())
        self.load(int(real.sum()), tokens=tokens)

    def done(self, rows: int) -> None:
        """Count rows that came out of the model; a batch may come out in parts."""
        self._rows += rows

    def reading(self) -> ProgressReading:
        """Return how far the pass is."""
        elapsed = self._clock() - self._started
        tokens = self._loaded_tokens * self._rows / self._loaded_rows if self._loaded_rows else 0.0
        share = _share(tokens, self._own_tokens) or _share(self._rows, self._own_rows)
        return ProgressReading(
            examples=self._examples(),
            examples_total=self._total,
            tokens_per_second=tokens * self._ranks / elapsed if tokens and elapsed > 0 else None,
            seconds_left=elapsed * (1 - share) / share if share else None,
        )

    def _examples(self) -> int:
        if self._total is None:
            return self._rows * self._ranks
        return min(self._total, round(self._total * (_share(self._rows, self._own_rows) or 0.0)))


def tokens_of(inputs: Any) -> int:
    """Count the tokens of a batch: by its mask where that is at hand, else its padded ids; 0 without ids.

    Example:
        >>> tokens_of({"input_ids": np.zeros((2, 4)), "attention_mask": np.array([[1, 1, 1, 0], [1, 0, 0, 0]])})
        4
    """
    if not isinstance(inputs, Mapping):
        return 0
    mask, ids = inputs.get("attention_mask"), inputs.get("input_ids")
    # a sum on an accelerator would wait for all that was queued there
    if mask is not None and getattr(getattr(mask, "device", None), "type", "cpu") == "cpu":
        return int(mask.sum())
    shape = getattr(ids, "shape", None)
    return 0 if shape is None else int(np.prod(shape))


def _share(done: float, total: float | None) -> float | None:
    return min(1.0, done / total) if total else None
