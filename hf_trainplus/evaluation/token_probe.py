"""The measured probe behind ``eval_tokens_per_batch="auto"``: an evaluation's own rows on its own device."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from hf_trainplus.evaluation.batching import Int64Array
from hf_trainplus.evaluation.token_limit import TokenLimit, auto_tokens_per_batch

# A CPU core is busy with one row of a few hundred tokens: a six-layer encoder ran 400 news texts in 2.13 to 2.18 times
# less CPU time than the stock batches for limits from 512 to 2048, and in 1.90 times less with 32 sorted rows.
_SMALLEST_ON_CPU = 512
_SMALLEST_ON_ACCELERATOR = 4096


def probe_token_limit(
    lengths: Int64Array,
    run: Callable[[Int64Array], object],
    device: torch.device,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> TokenLimit:
    """Choose the token limit of an evaluation from a few of its batches; see ``auto_tokens_per_batch``.

    It is not the same on two ranks or in two runs: rank 0 decides, and who needs equal batches later keeps the result.

    Args:
        lengths: (n,) lengths of the rows, n >= 1.
        run: reads, collates and runs the rows at these positions, and waits until the device is done.
        device: where the model runs.
        clock: seconds, monotonic.

    Raises:
        ValueError: no rows.
        Exception: what ``run`` raised, unless a batch of more than one row ran out of memory.

    Example:
        >>> probe_token_limit(np.array([4, 4, 9]), lambda rows: None, torch.device("cpu")).tokens_per_batch
        17
    """
    probe = TokenLimitProbe(lengths, run, clock=clock)
    smallest = _SMALLEST_ON_CPU if device.type == "cpu" else _SMALLEST_ON_ACCELERATOR
    first = min(smallest, probe.total_tokens)
    return auto_tokens_per_batch(
        probe.measure,
        smallest=first,
        least=min(first, probe.typical_tokens),
        largest=probe.total_tokens,
        total_tokens=probe.total_tokens,
        memory_used=lambda: device_memory_used(device),
        clock=clock,
    )


def device_memory_used(device: torch.device) -> float | None:
    """Return the share of the device's memory that is taken, in [0, 1]; None where it is not known.

    What PyTorch's allocator has reserved counts as taken, so that a peak still shows after its batch is done.

    Example:
        >>> device_memory_used(torch.device("cpu")) is None
        True
    """
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return 1 - free / total


class TokenLimitProbe:
    """Measures batches of an evaluation's own rows for ``auto_tokens_per_batch``.

    It keeps no result of the rows it runs. The rows are of typical length, the one in whose neighbourhood most tokens
    lie; whether the longest fit shows in the evaluation itself, where they go first.

    Args:
        lengths: (n,) lengths of the rows, n >= 1.
        run: reads, collates and runs the rows at these positions, and waits until the device is done.
        clock: seconds, monotonic.

    Raises:
        ValueError: no rows.

    Example:
        >>> ticks = iter([0.0, 0.5])
        >>> probe = TokenLimitProbe(np.array([5, 4, 4, 4]), lambda rows: None, clock=lambda: next(ticks))
        >>> probe.rows(8).tolist(), probe.measure(8)
        ([1, 2], 0.5)
    """

    def __init__(
        self, lengths: Int64Array, run: Callable[[Int64Array], object], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not len(lengths):
            raise ValueError("the probe was given no rows; give the lengths of at least one row.")
        self._order = np.argsort(-lengths, kind="stable")
        self._longest_first = np.maximum(lengths[self._order], 1)
        self._run = run
        self._clock = clock

    @property
    def total_tokens(self) -> int:
        """Tokens of all rows, without padding."""
        return int(self._longest_first.sum())

    @property
    def typical_tokens(self) -> int:
        """Tokens of the typical row; a batch of so many is that row alone."""
        return int(self._longest_first[self._typical()])

    def measure(self, tokens: int) -> float:
        """Run one batch of about ``tokens`` padded tokens; return the seconds, scaled to exactly so many tokens."""
        first, count = self._slice(tokens)
        start = self._clock()
        self._run(self._order[first : first + count])
        return (self._clock() - start) * tokens / (count * int(self._longest_first[first]))

    def rows(self, tokens: int) -> Int64Array:
        """Choose neighbours in length around the typical row, as many as fit the limit, at least one."""
        first, count = self._slice(tokens)
        return self._order[first : first + count]

    def _slice(self, tokens: int) -> tuple[int, int]:
        typical = self._typical()
        count = min(len(self._order), max(1, tokens // int(self._longest_first[typical])))
        return min(typical, len(self._order) - count), count

    def _typical(self) -> int:
        return int(np.searchsorted(np.cumsum(self._longest_first), self.total_tokens / 2))
