"""The books of a leak watch: points, what lived at the end of the warm-up, and the one warning."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from transformers.utils import logging

from hf_trainplus.monitor.leaks import (
    Census,
    Grown,
    LeakVerdict,
    MemoryPoint,
    grown_sites,
    judge_memory,
    own_resident_bytes,
    read_point,
    take_census,
)

logger = logging.get_logger("hf_trainplus")

_GIB = 1024.0**3
# what collecting a large process's garbage is taken to cost before the first time it was measured
_FIRST_COST_SECONDS = 0.25
_KINDS = ("host_bytes", "device_allocated_bytes", "unused_bytes")


@dataclass(frozen=True)
class LeakOptions:
    """What ``MemoryLeakCallback`` was told; see there."""

    every_steps: int | None
    warmup: int
    least_growth_bytes: float
    trace_allocations: bool
    empty_cache: bool
    time_share: float | None


class LeakWatch:
    """One run under watch; also a listener of the training loader.

    Args:
        options: what the callback was told.
        device: the CUDA device that is trained on, or None.
        rank: for the warning.
        clock: seconds from a fixed, unknown point.
    """

    def __init__(
        self,
        options: LeakOptions,
        device: torch.device | None,
        rank: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._device = device
        self._rank = rank
        self._clock = clock
        self._began = clock()
        self._spent, self._next_cost = 0.0, _FIRST_COST_SECONDS
        self._process = psutil.Process()
        self.series: dict[str, list[MemoryPoint]] = {}
        self.grown: list[Grown] = []
        self.hears_loader = False
        self._largest_batch: float | None = None
        self._before: Census | None = None
        self._sites_before: tracemalloc.Snapshot | None = None
        self._warned = False
        self._started_tracing = options.trace_allocations and not tracemalloc.is_tracing()
        if self._started_tracing:
            tracemalloc.start()

    def take(self, name: str, step: int) -> None:
        """Collect garbage, take a point of a series, and warn when it shows a leak.

        A point for which the share of time does not suffice is left out; the next one stands at its place of the
        cycle all the same.
        """
        now, share = self._clock(), self._options.time_share
        if share is not None and self._spent + self._next_cost > share * (now - self._began):
            return
        self._take(name, step)
        self._next_cost = self._clock() - now
        self._spent += self._next_cost

    def _take(self, name: str, step: int) -> None:
        gc.collect()
        if self._options.empty_cache and self._device is not None:
            torch.cuda.empty_cache()
        points = self.series.setdefault(name, [])
        points.append(self._point(step))
        if self._before is None and len(points) > self._options.warmup:
            self._before = take_census(torch.Tensor)
            self._sites_before = tracemalloc.take_snapshot() if self._options.trace_allocations else None
        elif self._before is not None and not self._warned:
            self._warn_about(name, points, self._before)

    def judge(self, points: list[MemoryPoint]) -> list[LeakVerdict]:
        """Return a verdict for each kind of memory that is measured."""
        measured = [kind for kind in _KINDS if any(point.value(kind) is not None for point in points)]
        options = self._options
        return [
            judge_memory(points, kind, warmup=options.warmup, least_growth_bytes=options.least_growth_bytes)
            for kind in measured
        ]

    def summary(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "verdicts": {name: [one.to_json() for one in self.judge(points)] for name, points in self.series.items()},
            "points": {name: [point.to_json() for point in points] for name, points in self.series.items()},
            "grown": [one.to_json() for one in self.grown],
            "allocator": _allocator_peak(self._device),
        }

    def close(self) -> None:
        """Stop tracing allocations, if this watch began it."""
        if self._started_tracing:
            tracemalloc.stop()
            self._started_tracing = False

    def loader_starts(self) -> None:
        """Nothing to do: only batches count."""

    def fetch_starts(self) -> None:
        """Nothing to do: only batches count."""

    def fetch_ends(self, batch: Any) -> None:
        """Remember the largest batch: longer ones need more memory without anything leaking."""
        values = (
            batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else (batch,)
        )
        sizes = [value.numel() for value in values if isinstance(value, torch.Tensor)]
        if sizes:
            self._largest_batch = max(self._largest_batch or 0.0, float(max(sizes)))

    def _point(self, step: int) -> MemoryPoint:
        device = self._device
        return read_point(
            step,
            resident=lambda: own_resident_bytes(lambda: float(self._process.memory_info().rss)),
            device_statistics=None if device is None else lambda: torch.cuda.memory_stats(device),
            largest_batch=self._largest_batch if self.hears_loader else None,
        )

    def _warn_about(self, name: str, points: list[MemoryPoint], before: Census) -> None:
        leaks = [one for one in self.judge(points) if one.cause == "leak"]
        if not leaks:
            return
        self._warned = True
        grown = take_census(torch.Tensor).grown_since(before)
        if self._sites_before is not None:
            grown += grown_sites(self._sites_before, tracemalloc.take_snapshot())
        # less than the noise of one point is what this step happens to hold, and no leak
        self.grown = [one for one in grown if one.bytes is None or one.bytes >= self._options.least_growth_bytes]
        what = "evaluation" if name == "evaluation" else f"interval of {self._options.every_steps} steps"
        lines = [f"memory leak on rank {self._rank}: {one.tell(what)}" for one in leaks]
        lines += [f"  {one.tell()}" for one in self.grown] or [f"  {self._unseen()}"]
        logger.warning("\n".join(lines))

    def _unseen(self) -> str:
        if self._sites_before is None:
            return "no tensor and no container grew: trace_allocations=True tells strings, bytes and the lines."
        return "nothing that Python tracks grew: look at C++ code."


def _allocator_peak(device: torch.device | None) -> dict[str, Any] | None:
    if device is None:
        return None
    statistics = torch.cuda.memory_stats(device)
    return {
        "allocated_gib": statistics["allocated_bytes.all.peak"] / _GIB,
        "reserved_gib": statistics["reserved_bytes.all.peak"] / _GIB,
        "total_gib": torch.cuda.get_device_properties(device).total_memory / _GIB,
        "retries": int(statistics["num_alloc_retries"]),
    }
