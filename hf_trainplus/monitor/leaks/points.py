"""Memory at one point of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class MemoryPoint:
    """What was in use at one point of the cycle, after garbage collection, in bytes; None where it is not measured.

    Args:
        step: optimizer step, >= 0.
        host_bytes: resident set of the process, without pages of mapped files where the system tells them apart.
        device_allocated_bytes: what tensors hold on the device.
        device_reserved_bytes: what the caching allocator keeps on the device.
        largest_batch: elements of the largest training batch so far (rows x length), None where nobody counts.

    Example:
        >>> MemoryPoint(10, host_bytes=5e8).value("host_bytes")
        500000000.0
    """

    step: int
    host_bytes: float | None = None
    device_allocated_bytes: float | None = None
    device_reserved_bytes: float | None = None
    largest_batch: float | None = None

    def value(self, kind: str) -> float | None:
        """Return one of the three byte counts by name, or ``unused_bytes``: reserved minus allocated."""
        if kind == "unused_bytes":
            if self.device_reserved_bytes is None or self.device_allocated_bytes is None:
                return None
            return self.device_reserved_bytes - self.device_allocated_bytes
        found: float | None = getattr(self, kind)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def read_point(
    step: int,
    *,
    resident: Callable[[], float],
    device_statistics: Callable[[], Mapping[str, float]] | None = None,
    largest_batch: float | None = None,
) -> MemoryPoint:
    """Read memory now. Collect garbage first: what is only waiting to be collected is no leak.

    Args:
        step: optimizer step.
        resident: returns the process's resident bytes.
        device_statistics: returns ``torch.cuda.memory_stats()`` or the like; None without an allocator.
        largest_batch: elements of the largest batch so far.
    """
    statistics = None if device_statistics is None else device_statistics()
    return MemoryPoint(
        step,
        host_bytes=float(resident()),
        device_allocated_bytes=None if statistics is None else float(statistics["allocated_bytes.all.current"]),
        device_reserved_bytes=None if statistics is None else float(statistics["reserved_bytes.all.current"]),
        largest_batch=largest_batch,
    )
