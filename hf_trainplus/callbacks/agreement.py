"""Ranks agree before they act: one small all-reduce at a boundary that every rank reaches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import distributed

# the default group it was made beside, and the group on the host: a process may end one world and begin another
_host_group: tuple[object, distributed.ProcessGroup] | None = None


def agree(values: Sequence[float]) -> list[float]:
    """Take the largest of each value over all ranks; without a process group these are the own values.

    Every rank must call it equally often, with vectors of equal length. It runs on the host: next to a NCCL group it
    makes a gloo group once, so that no rank waits for its device here.

    Args:
        values: (k,) what this rank saw, e.g. 1.0 for a signal.

    Returns:
        (k,) maxima, equal on all ranks.

    Example:
        >>> agree([1.0, 0.0])
        [1.0, 0.0]
    """
    if not world_size() > 1:
        return [float(value) for value in values]
    votes = torch.tensor(list(values), dtype=torch.float64)
    distributed.all_reduce(votes, op=distributed.ReduceOp.MAX, group=_group())
    return [float(vote) for vote in votes]


def world_size() -> int:
    """Return the number of ranks of the default process group, 1 without one."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 1
    return distributed.get_world_size()


def _group() -> distributed.ProcessGroup | None:
    global _host_group
    if distributed.get_backend() == "gloo":
        return None
    world = distributed.group.WORLD
    if _host_group is None or _host_group[0] is not world:
        _host_group = (world, distributed.new_group(backend="gloo"))
    return _host_group[1]
