"""Random state that an evaluation must leave as it found it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def preserve_rng() -> Iterator[None]:
    """Put the random state of Python, numpy and torch (CPU and every device in use) back on leaving.

    Upstream's evaluation shifts torch's state, so that a run with dropout trains to other weights when it is evaluated.
    Generators that a dataset or a sampler owns itself are not touched.

    Example:
        >>> import torch
        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <torch._C.Generator object at ...>
        >>> with preserve_rng():
        ...     _ = torch.rand(3)
        >>> first = torch.rand(1)
        >>> _ = torch.manual_seed(0)
        >>> bool(first == torch.rand(1))
        True
    """
    python_state, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    devices = _devices_in_use()
    device_states = [(module, module.get_rng_state_all()) for module in devices]
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.random.set_rng_state(torch_state)
        for module, states in device_states:
            module.set_rng_state_all(states)


def _devices_in_use() -> list[Any]:
    """List the accelerator modules whose context exists; asking others would create one."""
    found = [module for module in (torch.cuda, getattr(torch, "xpu", None)) if module and module.is_initialized()]
    if torch.backends.mps.is_available():
        found.append(_MpsStates)
    return found


class _MpsStates:
    """MPS has one generator and the names of a single state."""

    @staticmethod
    def get_rng_state_all() -> torch.Tensor:
        return torch.mps.get_rng_state()

    @staticmethod
    def set_rng_state_all(state: torch.Tensor) -> None:
        torch.mps.set_rng_state(state)
