"""Data order as a function of seed, stage and epoch: nothing that ran before shifts it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import Sampler


class StageOrder(Sampler[int]):
    """Draws another sampler's order under a seed of its own, the same on all ranks.

    It does not shuffle by itself: a sequential sampler stays sequential.

    Args:
        sampler: draws from torch's global generator, as the Trainer's samplers do.
        key: whole numbers that, with the epoch, decide the order: the seed, the stage, further visits of it.

    Example:
        >>> from torch.utils.data import RandomSampler
        >>> first = StageOrder(RandomSampler(range(50)), (0, 1))
        >>> again = StageOrder(RandomSampler(range(50)), (0, 1))
        >>> other = StageOrder(RandomSampler(range(50)), (0, 2))
        >>> list(first) == list(again), list(first) == list(other)
        (True, False)
    """

    def __init__(self, sampler: Sampler[int], key: Sequence[int]) -> None:
        self.sampler = sampler
        self.key = tuple(key)
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(cast("Sized", self.sampler))

    def __iter__(self) -> Iterator[int]:
        seed = int(np.random.SeedSequence([*self.key, self.epoch]).generate_state(1, np.uint64)[0] >> 1)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            order = list(self.sampler)
        return iter(order)


def fixed_order(sampler: Any, key: Sequence[int]) -> Any:
    """Return the sampler with an order of its own; what has no sampler, or is a batch sampler, is left alone."""
    if sampler is None or getattr(sampler, "rank", None) is not None:
        return sampler  # a stream, or batches that are dealt out over ranks by their lengths and seeded by epoch
    return StageOrder(sampler, key)
