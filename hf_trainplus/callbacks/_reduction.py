"""Time that backward waits for the gradients of other ranks, measured by a communication hook."""

# torch reads the hook's annotations as objects: no "from __future__ import annotations" here
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers.utils import logging

from hf_trainplus.monitor.device_timer import DeviceTimer

logger = logging.get_logger("hf_trainplus")

_PART = "communication"


class ReductionTimer:
    """Times the reduction of each backward's last bucket: the one that no computation is left to hide.

    It reduces as torch's own ``allreduce_hook`` does: gradients are divided by the number of ranks and summed. The
    reducer that is used without any hook multiplies by the inverse, which differs in the last bit unless the number of
    ranks is a power of two; that is why it is asked for and never put in by itself.

    Args:
        timer: on CUDA, where reduction runs in the device's own queue; None measures with ``clock``.
        clock: seconds from a fixed, unknown point.
    """

    def __init__(self, timer: DeviceTimer | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.timer = timer
        self._clock = clock
        self._seconds: float | None = None

    @property
    def seconds(self) -> float | None:
        """Seconds so far; None before the first reduction."""
        return self._seconds if self.timer is None else self.timer.collect().get(_PART)

    def put_into(self, model: Any) -> bool:
        """Register with a DDP model before its first backward.

        Returns:
            False, with a warning, for another kind of model or one that has a hook.
        """
        if not isinstance(model, DistributedDataParallel):
            logger.warning(f"gradient reduction is not timed: {type(model).__name__} is no DistributedDataParallel.")
            return False
        try:
            model.register_comm_hook(None, self._hook)
        except RuntimeError as error:
            logger.warning(f"gradient reduction is not timed: the model has a communication hook ({error}).")
            return False
        return True

    # torch reads this annotation and refuses another one
    def _hook(self, state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined, unused-ignore]
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

        mark = None if self.timer is None else self.timer.mark()
        began = self._clock()
        future: Any = allreduce_hook(state, bucket)
        if not bucket.is_last():
            return future  # type: ignore[no-any-return]

        def done(finished: Any) -> Any:
            if self.timer is None:
                self._seconds = (self._seconds or 0.0) + self._clock() - began
            else:
                self.timer.add(_PART, mark, self.timer.mark())
            return finished.value()

        return future.then(done)  # type: ignore[no-any-return]


def time_reduction(
    model: Any, before: ReductionTimer | None, timer: DeviceTimer | None, clock: Callable[[], float]
) -> ReductionTimer | None:
    """Return what times the reductions of a run: a hook put into the model, or that of its run before.

    Args:
        model: as the trainer has wrapped it.
        before: what timed the model's run before; it stays, and its marks go to the new timer.
        timer: on CUDA.
        clock: seconds from a fixed, unknown point.
    """
    if before is None:
        made = ReductionTimer(timer, clock)
        return made if made.put_into(model) else None
    if timer is not None:
        before.timer = timer
    return before
