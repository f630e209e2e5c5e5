"""Tell a leak from warm-up, from longer batches and from an allocator in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hf_trainplus.monitor.leaks.points import MemoryPoint
from hf_trainplus.monitor.robust import Slope, theil_sen

Cause = Literal["leak", "longer_batches", "fragmentation", "none", "unknown"]


@dataclass(frozen=True)
class LeakVerdict:
    """What is said about one kind of memory.

    Args:
        kind: ``host_bytes`` or ``device_allocated_bytes``; ``unused_bytes`` for the allocator.
        cause: ``leak``: it grows from point to point without end. ``longer_batches``: it grew when a batch was larger
            than all before. ``fragmentation``: what grows is reserved and used by no tensor. ``none``. ``unknown``:
            too few points.
        slope: bytes a point with its interval, over the points after warm-up; None when unknown.
        points: points that were judged.
    """

    kind: str
    cause: Cause
    slope: Slope | None
    points: int

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    def tell(self, what_is_a_point: str) -> str:
        """Return one sentence.

        Args:
            what_is_a_point: e.g. ``evaluation`` or ``100 steps``.
        """
        where = {"host_bytes": "host memory", "device_allocated_bytes": "device memory", "unused_bytes": "the reserve"}
        if self.slope is None:
            return f"{where[self.kind]}: {self.points} points are too few to tell."
        mib = 1024.0**2
        told = f"{self.slope.value / mib:+.2f} MiB [{self.slope.low / mib:+.2f}, {self.slope.high / mib:+.2f}]"
        ends = {
            "leak": "it leaks",
            "longer_batches": "it grew with the largest batch so far: no leak",
            "fragmentation": "it is reserved and used by no tensor: fragmentation, no leak",
            "none": "it does not grow",
            "unknown": "no verdict",
        }
        return f"{where[self.kind]}: {told} an {what_is_a_point}; {ends[self.cause]}."


def judge_memory(
    points: Sequence[MemoryPoint],
    kind: str,
    *,
    warmup: int = 2,
    least_points: int = 6,
    least_growth_bytes: float = 256 * 1024.0,
    confidence: float = 0.95,
    most_points: int = 500,
) -> LeakVerdict:
    """Judge one kind of memory over equal points of the cycle.

    The slope is Theil and Sen's (see ``theil_sen``), so that a single jump, an allocator that gives pages back late
    or a cache that fills once is no leak. Growth from one point to the next is set aside where the largest batch so
    far grew as well: caches and buffers follow the longest batch. It cannot see a leak smaller than
    ``least_growth_bytes`` a point, and a cache that really grows at every point counts as a leak.

    Args:
        points: points in order, each at the same place of its cycle.
        kind: ``host_bytes``, ``device_allocated_bytes`` or ``unused_bytes``.
        warmup: points at the start that are not judged: first batches fill pools and caches.
        least_points: points after warm-up below which the verdict is unknown, >= 4.
        least_growth_bytes: bytes a point below which growth is noise, >= 0.
        confidence: level of the slope's interval.
        most_points: newest points that are judged, >= ``least_points``: every pair of them has a slope, so that time
            and memory grow with their square.

    Returns:
        The verdict. A ``leak`` has the whole interval of its slope above ``least_growth_bytes``, over all judged points
        and over their second half; the ``unused_bytes`` of an allocator that grow so are ``fragmentation``.

    Raises:
        ValueError: ``least_points`` below 4 or above ``most_points``, an unknown kind, or negative numbers.

    Example:
        >>> growing = [MemoryPoint(step, host_bytes=1e9 + 1e6 * step) for step in range(12)]
        >>> judge_memory(growing, "host_bytes").cause
        'leak'
    """
    allowed = ("host_bytes", "device_allocated_bytes", "unused_bytes")
    if kind not in allowed or not 4 <= least_points <= most_points or warmup < 0 or least_growth_bytes < 0:
        raise ValueError(
            f"kind={kind!r}, least_points={least_points}, most_points={most_points}, warmup={warmup}, "
            f"least_growth_bytes={least_growth_bytes}; allowed are {', '.join(allowed)}, 4 <= least_points <= "
            "most_points and numbers >= 0."
        )
    known = [point for point in points if point.value(kind) is not None][warmup:][-most_points:]
    if len(known) < least_points:
        return LeakVerdict(kind, "unknown", None, len(known))
    values = np.asarray([point.value(kind) for point in known], dtype=np.float64)
    slope = _slope(values, confidence)
    if not _grows(values, slope, least_growth_bytes, confidence):
        return LeakVerdict(kind, "none", slope, len(known))
    rest = _without_larger_batches(values, known)
    if rest is not None and not _grows(rest, _slope(rest, confidence), least_growth_bytes, confidence):
        return LeakVerdict(kind, "longer_batches", slope, len(known))
    return LeakVerdict(kind, "fragmentation" if kind == "unused_bytes" else "leak", slope, len(known))


def _slope(values: npt.NDArray[np.float64], confidence: float) -> Slope:
    return theil_sen(np.arange(len(values)), values, confidence=confidence)


def _grows(values: npt.NDArray[np.float64], slope: Slope, least: float, confidence: float) -> bool:
    if slope.low <= 0 or slope.value < least:
        return False
    # a warm-up that takes longer than expected flattens out; a leak does not. Three points have no interval.
    half = values[len(values) // 2 :]
    return len(half) < 3 or _slope(half, confidence).value >= least


def _without_larger_batches(
    values: npt.NDArray[np.float64], points: Sequence[MemoryPoint]
) -> npt.NDArray[np.float64] | None:
    """Set growth aside that came with a new largest batch; None when nothing did."""
    sizes = [point.largest_batch for point in points]
    if any(size is None for size in sizes):
        return None
    larger = np.diff(np.asarray(sizes, dtype=np.float64)) > 0
    if not larger.any():
        return None
    steps = np.where(larger, 0.0, np.diff(values))
    return np.asarray(np.concatenate([[0.0], np.cumsum(steps)]))
