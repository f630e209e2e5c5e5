"""The processes that evaluate together, and the few things that they tell each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch

T = TypeVar("T")


class OtherRankError(RuntimeError):
    """Raised on the ranks that are well when another one has failed, so that all leave the evaluation together.

    Example:
        >>> raise OtherRankError("another rank could not read its rows; its own error says why.")
        Traceback (most recent call last):
        hf_trainplus.evaluation.ranks.OtherRankError: another rank could not read its rows; its own error says why.
    """


@dataclass(frozen=True)
class Ranks:
    """This process among all; every method is a collective when there is more than one.

    Args:
        index: rank of this process, 0 to size - 1.
        size: number of processes.

    Example:
        >>> ranks = Ranks()
        >>> ranks.gather("mine"), ranks.any(False)
        (['mine'], False)
    """

    index: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> Ranks:
        """Read rank and world size from the default process group, if there is one."""
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return cls()
        return cls(distributed.get_rank(), distributed.get_world_size())

    def gather(self, value: T) -> list[T]:
        """Return every rank's value, in rank order, on every rank."""
        if self.size == 1:
            return [value]
        values: list[T | None] = [None] * self.size
        torch.distributed.all_gather_object(values, value)
        return values  # type: ignore[return-value]

    def any(self, flag: bool) -> bool:
        """Say whether the flag is set on at least one rank."""
        if self.size == 1:
            return bool(flag)
        # one small tensor: this is asked before every batch, where a pickled object would cost more than it says
        device = torch.device("cpu") if torch.distributed.get_backend() == "gloo" else torch.device("cuda")
        told = torch.tensor([int(flag)], dtype=torch.int32, device=device)
        torch.distributed.all_reduce(told, op=torch.distributed.ReduceOp.MAX)
        return bool(told.item())

    def from_first(self, value: T) -> T:
        """Return the value of rank 0."""
        if self.size == 1:
            return value
        box = [value]
        torch.distributed.broadcast_object_list(box, src=0)
        return box[0]

    def scatter(self, values: list[T] | None) -> T:
        """Hand entry r of rank 0's list to rank r; other ranks pass None."""
        if self.size == 1:
            return values[0]  # type: ignore[index]
        box: list[T | None] = [None]
        torch.distributed.scatter_object_list(box, values, src=0)
        return box[0]  # type: ignore[return-value]
