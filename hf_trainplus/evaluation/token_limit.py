"""How many tokens a batch should hold: a search over measured times, with a margin kept in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hf_trainplus.evaluation.memory_backoff import is_out_of_memory, release_memory

Reason = Literal["no_faster", "memory", "time", "largest"]


@dataclass(frozen=True)
class ProbeTrial:
    """One measured batch size.

    Args:
        tokens: padded tokens of a batch.
        seconds: time for that many tokens; None when they did not fit in memory.
    """

    tokens: int
    seconds: float | None

    @property
    def rate(self) -> float:
        """Tokens a second; 0 when they did not fit, infinite below the clock's resolution."""
        if self.seconds is None:
            return 0.0
        return self.tokens / self.seconds if self.seconds > 0 else float("inf")


@dataclass(frozen=True)
class TokenLimit:
    """What the probe chose, and why it stopped there.

    Args:
        tokens_per_batch: the limit, >= 1.
        reason: ``no_faster`` larger batches gained too little; ``memory`` the margin was reached; ``time`` the probe
            had used its share; ``largest`` everything was tried.
        trials: what was measured, in order.
    """

    tokens_per_batch: int
    reason: Reason
    trials: tuple[ProbeTrial, ...]


def auto_tokens_per_batch(
    measure: Callable[[int], float],
    *,
    smallest: int,
    largest: int,
    least: int | None = None,
    total_tokens: int | None = None,
    gain: float = 0.05,
    memory_used: Callable[[], float | None] | None = None,
    memory_margin: float = 0.2,
    time_share: float = 0.05,
    max_seconds: float = 5.0,
    clock: Callable[[], float] = time.monotonic,
) -> TokenLimit:
    """Double the batch until tokens a second stop rising, memory is short or the probe has used its time.

    It runs nothing itself and is not the same on two ranks: rank 0 decides and the caller broadcasts. The smallest
    limit within ``gain`` of the best rate is chosen, since a small batch pads less.

    Args:
        measure: seconds for a batch of so many tokens; the first call warms up and is not counted.
        smallest: first limit tried, in tokens, >= 1.
        largest: last limit tried, in tokens, >= smallest.
        least: tokens below which a batch cannot be cut (one row), in [1, smallest]; None for smallest. Where smallest
            does not fit in memory it is halved down to here.
        total_tokens: tokens of the whole evaluation; None puts no share on the probe's time.
        gain: share by which a doubling must be faster, >= 0.
        memory_used: share of the device's memory that was in use at the peak, in [0, 1]; None where it is unknown.
        memory_margin: share of the memory that is to stay free, in [0, 1).
        time_share: largest share of the evaluation's own time that the probe may take, > 0.
        max_seconds: largest time of the probe in seconds, > 0.
        clock: seconds, monotonic.

    Returns:
        The limit; after an out-of-memory error the last that fitted, less the margin.

    Raises:
        ValueError: smallest below 1 or above largest, or least outside [1, smallest].
        Exception: what ``measure`` raised, unless a batch larger than ``least`` ran out of memory.

    Example:
        >>> auto_tokens_per_batch(lambda tokens: 0.01 + tokens / 1e5, smallest=256, largest=65536).tokens_per_batch
        16384
    """
    if not 1 <= smallest <= largest:
        raise ValueError(f"smallest={smallest} and largest={largest} were given; allowed is 1 <= smallest <= largest.")
    least = smallest if least is None else least
    if not 1 <= least <= smallest:
        raise ValueError(f"least={least} and smallest={smallest} were given; allowed is 1 <= least <= smallest.")
    started = clock()
    warm_up = _warm_up(measure, smallest, least)
    if len(warm_up) > 1:
        return _choose(warm_up, "memory", gain, memory_margin)
    trials: list[ProbeTrial] = []
    tokens = smallest
    while True:
        trials.append(ProbeTrial(tokens, _seconds(measure, tokens, may_fail=bool(trials))))
        used = memory_used() if memory_used is not None else None
        crowded = trials[-1].seconds is None or (used is not None and used > 1 - memory_margin)
        if crowded:
            return _choose(trials, "memory", gain, memory_margin)
        if len(trials) > 1 and trials[-1].rate < (1 + gain) * trials[-2].rate:
            return _choose(trials, "no_faster", gain)
        if tokens == largest:
            return _choose(trials, "largest", gain)
        tokens = min(2 * tokens, largest)
        allowed = _allowed_seconds(trials[0], total_tokens, time_share, max_seconds)
        if clock() - started + tokens / trials[-1].rate > allowed:
            return _choose(trials, "time", gain)


def _warm_up(measure: Callable[[int], float], tokens: int, least: int) -> list[ProbeTrial]:
    """Run the first batch, halved until it fits; return what was tried, the one that fits last."""
    trials: list[ProbeTrial] = []
    while True:
        trials.append(ProbeTrial(tokens, _seconds(measure, tokens, may_fail=tokens > least)))
        if trials[-1].seconds is not None:
            return trials
        release_memory()
        tokens = max(least, tokens // 2)


def _seconds(measure: Callable[[int], float], tokens: int, *, may_fail: bool) -> float | None:
    try:
        return measure(tokens)
    except Exception as error:
        if may_fail and is_out_of_memory(error):
            return None
        raise


def _allowed_seconds(first: ProbeTrial, total_tokens: int | None, time_share: float, max_seconds: float) -> float:
    if total_tokens is None:
        return max_seconds
    return min(max_seconds, time_share * total_tokens / first.rate)


def _choose(trials: list[ProbeTrial], reason: Reason, gain: float, memory_margin: float = 0.0) -> TokenLimit:
    """Take the smallest limit that is near the best rate, among those that left the margin free."""
    fitted = [trial for trial in trials if trial.seconds is not None]
    ceiling = float(fitted[-1].tokens)
    if reason == "memory" and len(fitted) < len(trials):
        ceiling *= 1 - memory_margin
    elif reason == "memory" and len(fitted) > 1:
        fitted = fitted[:-1]
        ceiling = float(fitted[-1].tokens)
    best = max(trial.rate for trial in fitted)
    chosen = next(trial.tokens for trial in fitted if trial.rate * (1 + gain) >= best)
    return TokenLimit(max(1, int(min(chosen, ceiling))), reason, tuple(trials))
