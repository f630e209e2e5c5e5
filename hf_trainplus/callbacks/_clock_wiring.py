"""Time the methods of a trainer that a step clock is attached to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from torch.nn.parallel import DistributedDataParallel
from transformers import Trainer

from hf_trainplus.callbacks._batch_counts import BatchCounts
from hf_trainplus.callbacks._clock_events import ClockEvents, LoaderClock
from hf_trainplus.callbacks._loader_tap import is_dispatched, listen, loader_of, skipped_fetches
from hf_trainplus.callbacks._wiring import put_around
from hf_trainplus.monitor.device_timer import DeviceTimer
from hf_trainplus.monitor.step_clock import StepClock


class AttachedClock(Protocol):
    """What the wiring asks of the callback that it belongs to."""

    active: bool
    timer: DeviceTimer | None

    def close_interval(self, state: Any) -> None:
        """End a logging interval; all ranks come here together."""

    def stop(self, state: Any) -> None:
        """End the account of a run."""


@contextmanager
def _inside_ddp(model: Any, starts: Callable[[], None]) -> Iterator[None]:
    """Tell when the model inside a DDP one begins: DDP first sends its buffers, which waits for the other ranks."""
    if not isinstance(model, DistributedDataParallel):
        yield
        return
    handle = model.module.register_forward_pre_hook(lambda *_: starts())
    try:
        yield
    finally:
        handle.remove()


class ClockWiring:
    """Wraps the public methods of one trainer so that their time is named.

    Args:
        trainer: the trainer; its class is not touched.
        clock: the clock to move.
        events: moves it at the Trainer's events.
        listener: moves it at the loader's fetches.
        counts: counts batches and forward time.
        owner: the callback.
    """

    def __init__(
        self,
        trainer: Trainer,
        *,
        clock: StepClock,
        events: ClockEvents,
        listener: LoaderClock,
        counts: BatchCounts,
        owner: AttachedClock,
    ) -> None:
        self.trainer = trainer
        self._clock = clock
        self._events = events
        self._listener = listener
        self._counts = counts
        self._owner = owner
        put_around(trainer, "get_batch_samples", self._get_batch_samples)
        put_around(trainer, "training_step", self._training_step)
        put_around(trainer, "compute_loss", self._compute_loss)
        put_around(trainer, "floating_point_ops", self._floating_point_ops)
        put_around(trainer, "evaluate", self._evaluate)
        put_around(trainer, "log", self._write_log)
        put_around(trainer, "train", self._train)
        put_around(trainer.callback_handler, "call_event", self._call_event)

    def _get_batch_samples(self, original: Callable[..., Any], epoch_iterator: Any, *args: Any, **kwargs: Any) -> Any:
        if (loader := loader_of(epoch_iterator)) is not None:
            listen(loader, self._listener)
            self._listener.epoch_starts(dispatched=is_dispatched(loader), skipped=skipped_fetches(loader))
        with self._clock.phase("rank_sync"):
            return original(self._timed(epoch_iterator), *args, **kwargs)

    def _timed(self, iterator: Iterator[Any]) -> Iterator[Any]:
        main_input = getattr(self.trainer.model, "main_input_name", "input_ids")
        while True:
            with self._clock.phase(self._listener.around):
                try:
                    batch = next(iterator)
                except StopIteration:
                    return
            self._listener.batch_comes()
            self._counts.count(batch, main_input)
            yield batch

    def _training_step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if self._owner.timer is not None:
            # before the Trainer's check for non-finite losses makes the host wait for the device
            self._owner.timer.look()
        return result

    def _compute_loss(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # prediction steps come here as well; they are evaluation
        if self._clock.part != "forward_backward":
            return original(*args, **kwargs)
        began = [self._counts.clock()]
        with _inside_ddp(args[0] if args else None, lambda: began.append(self._counts.clock())):
            result = original(*args, **kwargs)
        # before the model's own forward DDP may wait for the other ranks: that is no work of this one
        self._counts.add_forward(self._counts.clock() - began[:2][-1])
        return result

    def _floating_point_ops(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        flops = original(*args, **kwargs)
        if self._owner.active:
            self._counts.add_flops(float(flops))
        return flops

    def _evaluate(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._clock.phase("evaluation"):
            return original(*args, **kwargs)

    def _write_log(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._clock.phase("logging"):
            result = original(*args, **kwargs)
        if self._clock.part == "logging" and not self._clock.depth:
            self._clock.switch("other")
        return result

    def _train(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            self._owner.stop(self.trainer.state)

    def _call_event(
        self, original: Callable[..., Any], event: str, args: Any, state: Any, control: Any, **kwargs: Any
    ) -> Any:
        if event == "on_train_begin":
            # the clock is started inside: no phase may be open around that
            return original(event, args, state, control, **kwargs)
        self._events.before(event)
        with self._clock.phase("callbacks"):
            control = original(event, args, state, control, **kwargs)
        self._events.after(event, should_log=control.should_log)
        if event in ("on_step_end", "on_epoch_end") and control.should_log and self._owner.active:
            # the ranks exchange their rows: who waits there waits for the slowest of them, and not for a log
            with self._clock.phase("rank_sync"):
                self._owner.close_interval(state)
        return control
