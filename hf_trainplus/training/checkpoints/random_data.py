"""Training rows that draw random numbers: what a resumed run cannot repeat, seen and named."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from hf_trainplus import _upstream as upstream

if TYPE_CHECKING:
    from transformers import Trainer

T = TypeVar("T")


class RandomDataWatch:
    """Says once when fetching training rows draws from the process's random states, or from a generator that runs on.

    A resumed run skips rows without fetching them, so draws that depend on how many were fetched before come out
    differently: such data is excepted from the equality of a resumed and an uninterrupted run. It changes nothing, and
    it does not see what worker processes draw (``dataloader_num_workers`` above 0).

    Args:
        trainer: whose rows are fetched.

    Example:
        >>> from types import SimpleNamespace
        >>> trainer, rows = SimpleNamespace(data_collator=None, state=SimpleNamespace(epoch=0.0)), iter(range(9))
        >>> watch = RandomDataWatch(trainer)
        >>> [watch.fetched(lambda: next(rows)) for _ in range(3)], watch.found
        ([0, 1, 2], None)
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._epoch: int | None = None
        self._done = False
        self.found: str | None = None

    def fetched(self, fetch: Callable[[], T]) -> T:
        """Return ``fetch()``, the rows of one step, observed when it is the second one of an epoch.

        The first one makes the iterator, which draws a seed for the workers whatever the data is.
        """
        epoch = int(self._trainer.state.epoch or 0)
        if self._done or epoch != self._epoch:
            self._epoch = epoch
            return fetch()
        before = _states()
        batch = fetch()
        self._done = True
        collator = self._trainer.data_collator
        if _states() != before:
            self._say("draws from the process's random states")
        elif getattr(collator, "seed", None) is not None and hasattr(collator, "generator"):
            self._say("draws from a generator that runs on from batch to batch")
        return batch

    def _say(self, what: str) -> None:
        collator, rows = type(self._trainer.data_collator).__name__, type(self._trainer.train_dataset).__name__
        self.found = f"fetching training rows ({rows}, collated by {collator}) {what}"
        args = self._trainer.args
        if args.save_strategy != "no" and args.process_index == 0:
            upstream.logger.warning(
                f"{self.found}: a run resumed from a checkpoint sees other draws than an uninterrupted one. Draw from "
                "a seed that depends on the row and the epoch alone to have them equal."
            )


def _states() -> list[Any]:
    numpy = np.random.get_state()
    return [random.getstate(), torch.random.get_rng_state().numpy().tobytes(), numpy[1].tobytes(), numpy[2:]]  # type: ignore[index]
