"""What a rank's training batches hold, counted without waiting for a device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch


class BatchCounts:
    """Counts the rows, tokens, FLOPs and forward seconds of this rank's training batches.

    Tokens are the elements of the model's main input, padding included: counting without padding would wait for the
    device.

    Args:
        clock: seconds from a fixed, unknown point.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.clear()

    def clear(self) -> None:
        """Begin anew; what was never counted is None."""
        self.examples: float | None = None
        self.tokens: float | None = None
        self.flops: float | None = None
        self.forward_seconds: float | None = None

    def count(self, batch: Any, main_input: str) -> None:
        """Count one batch."""
        rows = _rows(batch.get(main_input)) if isinstance(batch, Mapping) else None
        rows = _rows(batch) if rows is None else rows
        if rows is not None:
            self.examples = (self.examples or 0.0) + rows
        tokens = batch.get(main_input) if isinstance(batch, Mapping) else None
        if isinstance(tokens, torch.Tensor) and not tokens.is_floating_point():
            self.tokens = (self.tokens or 0.0) + tokens.numel()

    def add_flops(self, flops: float) -> None:
        """Add what the model says about one batch; 0 means that it does not tell."""
        if flops:
            self.flops = (self.flops or 0.0) + flops

    def add_forward(self, seconds: float) -> None:
        """Add host seconds of one forward pass."""
        self.forward_seconds = (self.forward_seconds or 0.0) + seconds


def _rows(value: Any) -> int | None:
    """Return the length of the first tensor inside; None without one. Whatever else a batch holds is not looked at."""
    if isinstance(value, torch.Tensor):
        return value.size(0) if value.dim() else None
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return next((rows for rows in map(_rows, inside) if rows is not None), None)
