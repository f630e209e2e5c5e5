"""What lives in memory: tensors by shape, objects by type, and where Python memory was allocated."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

# an object of a type that is made and thrown away all the time says nothing
_LEAST_COUNT = 8


@dataclass(frozen=True)
class Grown:
    """Something of which there is more than before.

    Args:
        what: a tensor's device, type and shape, a type's name, or a file and line.
        count: how many more.
        bytes: how many bytes more, None where they are not known.
    """

    what: str
    count: int
    bytes: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    def tell(self) -> str:
        """Return e.g. ``+120 x cpu float32 (16, 512) (3.8 MiB)``."""
        size = "" if self.bytes is None else f" ({self.bytes / 1024**2:.1f} MiB)"
        return f"{self.count:+d} x {self.what}{size}"


@dataclass(frozen=True)
class Census:
    """Counts of what the garbage collector knows, at one moment.

    Tensors that only C++ holds (autograd's saved ones) are not seen; their bytes are in the allocator's figures.
    """

    tensors: Counter[str] = field(default_factory=Counter)
    tensor_bytes: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)

    def grown_since(self, earlier: Census, *, top: int = 5) -> list[Grown]:
        """Return what grew most: tensors by bytes first, the other shapes in one entry, then other types by count.

        Args:
            earlier: an older census of the same process.
            top: entries of each sort, >= 1.
        """
        tensors = [
            Grown(what, count - earlier.tensors[what], float(self.tensor_bytes[what] - earlier.tensor_bytes[what]))
            for what, count in self.tensors.items()
            if count > earlier.tensors[what]
        ]
        tensors.sort(key=lambda grown: -(grown.bytes or 0.0))
        types = [Grown(what, count - earlier.types[what]) for what, count in self.types.items()]
        types = [grown for grown in types if grown.count >= _LEAST_COUNT]
        types.sort(key=lambda grown: -grown.count)
        return tensors[:top] + _together(tensors[top:]) + types[:top]


def _together(tensors: list[Grown]) -> list[Grown]:
    """Return one entry for all: what is kept of every batch has as many shapes as there are lengths."""
    if not tensors:
        return []
    count, size = sum(one.count for one in tensors), sum(one.bytes or 0.0 for one in tensors)
    return [Grown(f"tensors of {len(tensors)} other shapes", count, size)]


def take_census(tensor_type: type | None = None, objects: Iterable[object] | None = None) -> Census:
    """Count what lives now; it costs some tenths of a second in a process with millions of objects.

    Types are read without asking the objects: a lazy module or a dead proxy must not wake up.

    Args:
        tensor_type: ``torch.Tensor``; None counts types only.
        objects: what to count; everything that the garbage collector tracks when None.

    Example:
        >>> census = take_census(objects=[{}, {}, []])
        >>> census.types["dict"], census.types["list"]
        (2, 1)
    """
    census = Census()
    for one in gc.get_objects() if objects is None else objects:
        kind = type(one)
        if tensor_type is not None and issubclass(kind, tensor_type):
            what, size = _describe(one)
            census.tensors[what] += 1
            census.tensor_bytes[what] += size
        else:
            census.types[kind.__qualname__] += 1
    return census


def _describe(tensor: Any) -> tuple[str, int]:
    """Return a tensor's name and bytes; those of lazy modules have no shape yet, nested ones have several."""
    kind = f"{tensor.device} {str(tensor.dtype).removeprefix('torch.')}"
    try:
        return f"{kind} {tuple(tensor.shape)}", tensor.element_size() * tensor.nelement()
    except RuntimeError:
        return f"{kind} {type(tensor).__name__} without a shape", 0


def grown_sites(before: tracemalloc.Snapshot, now: tracemalloc.Snapshot, *, top: int = 5) -> list[Grown]:
    """Return the lines whose Python memory grew most between two snapshots.

    Args:
        before: the older snapshot.
        now: the newer one.
        top: lines, >= 1.
    """
    ours = tracemalloc.Filter(False, tracemalloc.__file__)
    differences = now.filter_traces([ours]).compare_to(before.filter_traces([ours]), "lineno")
    grown = [one for one in differences if one.size_diff > 0]
    return [
        Grown(f"{one.traceback[0].filename}:{one.traceback[0].lineno}", one.count_diff, float(one.size_diff))
        for one in grown[:top]
    ]
