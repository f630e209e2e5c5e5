"""The one collective of the monitor: a short vector of each rank, at logging steps only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch


def gather_rows(row: Sequence[float], device: torch.device | str = "cpu") -> npt.NDArray[np.float64]:
    """Gather one row a rank; without a process group it is the own row alone.

    Every rank must call it, with rows of equal length: on a device with an asynchronous queue it waits for the queue.

    Args:
        row: (k,) values of this rank.
        device: where the process group's backend wants its tensors.

    Returns:
        (world size, k) rows in rank order, the same on all ranks.

    Example:
        >>> gather_rows([1.0, 2.0]).shape
        (1, 2)
    """
    own = np.asarray(row, dtype=np.float64)
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return own[None, :]
    mine = torch.tensor(own, dtype=torch.float64, device=device)
    everyone = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(everyone, mine)
    return torch.stack(everyone).cpu().numpy()
