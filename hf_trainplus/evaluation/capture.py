"""Keep what a model returned while somebody else's code called it."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Any

from torch import nn

NEWEST = 4


class OutputCapture:
    """Forward hook that keeps the outputs of ``module`` until ``take`` is called.

    A trainer whose ``compute_loss`` is overridden returns a mean over the batch; the outputs behind it are where the
    losses of single rows can still be read. It changes no output and keeps nothing between batches.

    Args:
        module: the model itself, not its distributed wrapper.

    Example:
        >>> from torch import nn, ones
        >>> model = nn.Linear(2, 1)
        >>> with OutputCapture(model) as capture:
        ...     _ = model(ones(3, 2))
        ...     [tuple(output.shape) for output in capture.take()]
        [(3, 1)]
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        # generation calls the model once a token: only the newest outputs can belong to the loss
        self._outputs: deque[Any] = deque(maxlen=NEWEST)
        self._handle: Any = None

    def __enter__(self) -> OutputCapture:
        self._handle = self._module.register_forward_hook(self._keep)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.remove()
        self._outputs.clear()

    def _keep(self, module: nn.Module, args: Any, output: Any) -> None:
        self._outputs.append(output)

    def take(self) -> list[Any]:
        """Return the newest outputs since the last call, at most ``NEWEST``, oldest first, and forget them."""
        taken = list(self._outputs)
        self._outputs.clear()
        return taken
