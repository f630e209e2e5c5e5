"""The callback that splits a run's time into parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_trainplus.callbacks._batch_counts import BatchCounts
from hf_trainplus.callbacks._clock_events import ClockEvents, LoaderClock
from hf_trainplus.callbacks._clock_wiring import ClockWiring
from hf_trainplus.callbacks._files import write_json
from hf_trainplus.callbacks._loader_tap import is_dispatched, is_stream, listen, stop_listening
from hf_trainplus.callbacks._reduction import ReductionTimer, time_reduction
from hf_trainplus.callbacks._settings import settings_of
from hf_trainplus.callbacks._step_account import StepAccount
from hf_trainplus.callbacks._torch_devices import cuda_timer, peak_flops_of
from hf_trainplus.callbacks._wiring import add_to_log, is_training_log, stand_before_trackers
from hf_trainplus.monitor.device_timer import DeviceTimer
from hf_trainplus.monitor.step_clock import PARTS, PartTimes, StepClock
from hf_trainplus.monitor.step_report import StepReport

SUMMARY_FILE = "trainplus/step_clock.json"
_ATTACHED_ONLY = frozenset({"host_to_device", "rank_sync", "callbacks"})


class StepClockCallback(TrainerCallback):
    """Split wall-clock time into waiting for data, copying, forward and backward, optimizer, evaluation, ...

    Works with any Trainer. Given as a callback, it tells apart what the Trainer's events show: data_wait,
    forward_backward, optimizer (its step alone), evaluation, saving, logging; the rest is "other" (put it last:
    callbacks behind it count as what has just begun), and a batch is taken to be full when examples are counted;
    resumed in the middle of an epoch it does not hear the loader, and data_wait is not measured. ``attach(trainer)``
    adds it, times copies, the wait for other ranks and other callbacks too, counts batches one by one, and puts its
    keys into the Trainer's logs. It never waits for a device inside a step, draws no random number and decides
    nothing. In a distributed run put it on every rank: at logging steps the ranks exchange one short vector.

    Logged keys: the table of ``StepReport``. At the end ``trainplus/step_clock.json`` in the output folder holds the
    whole run, of a plan its last stage.

    Args:
        log: add the keys to the Trainer's training logs (attached, or under PlusTrainer).
        reduce_ranks: exchange the ranks' values at logging steps; False reports this rank alone.
        peak_flops: peak of one device in FLOP/s at the precision trained in, > 0; None looks a 16-bit peak up by the
            device's name and leaves the utilisation out when there is none or the run is in another precision.
        measure_reduction: attached to a DDP run, time gradient reduction by a communication hook (see
            ``ReductionTimer``: with a number of ranks that is no power of two, gradients differ in their last bit).
        write_summary: write the file at the end.
        clock: seconds from a fixed, unknown point.

    Raises:
        ValueError: ``peak_flops`` not above 0.

    Example:
        >>> callback = StepClockCallback(log=False)
        >>> callback.report is None      # nothing has been trained yet
        True
    """

    def __init__(
        self,
        *,
        log: bool = True,
        reduce_ranks: bool = True,
        peak_flops: float | None = None,
        measure_reduction: bool = False,
        write_summary: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if peak_flops is not None and peak_flops <= 0:
            raise ValueError(f"peak_flops={peak_flops}; allowed is a rate above 0, e.g. peak_flops=989e12.")
        self.clock = StepClock(clock)
        self.active = False
        self.timer: DeviceTimer | None = None
        self._log = log
        self._reduce_ranks = reduce_ranks
        self._peak_flops = peak_flops
        self._measure_reduction = measure_reduction
        self._reduction: ReductionTimer | None = None
        self._write_summary = write_summary
        self._counts = BatchCounts(clock)
        self._wiring: ClockWiring | None = None
        self._events = ClockEvents(self.clock, attached=False)
        self._listener = LoaderClock(self.clock, attached=False)
        self._account: StepAccount | None = None
        self._loader: Any = None
        self._folder = Path(".")
        self._hears_loader = False
        self._settings: dict[str, float | None] = {}
        self._last: PartTimes | None = None
        self._pending: dict[str, float] = {}

    @property
    def attached(self) -> bool:
        """Whether ``attach`` was called."""
        return self._wiring is not None

    @property
    def started(self) -> bool:
        """Whether a training run has been timed, or is being timed."""
        return self._account is not None

    @property
    def measured_parts(self) -> tuple[str, ...]:
        """The parts that can be told apart here; the time of the others is inside "other"."""
        missing = frozenset() if self.attached else _ATTACHED_ONLY
        if not (self._hears_loader and self._listener.hears) and not self.attached:
            missing |= {"data_wait"}
        return tuple(part for part in PARTS if part not in missing)

    @property
    def report(self) -> StepReport | None:
        """All logging intervals so far over all ranks; None before the first one."""
        return None if self._account is None else self._account.report

    def attach(self, trainer: Trainer) -> StepClockCallback:
        """Add this callback to a trainer, before its trackers, and time the trainer's own methods.

        Only public methods of this object are wrapped: ``get_batch_samples``, ``training_step``, ``compute_loss``,
        ``floating_point_ops``, ``evaluate``, ``log``, ``train``, the handler's ``call_event``. Again does nothing.

        Raises:
            ValueError: attached to another trainer already.
        """
        if self._wiring is not None:
            if self._wiring.trainer is not trainer:
                raise ValueError("this StepClockCallback is attached to another trainer; make one for each trainer.")
            return self
        self._events = ClockEvents(self.clock, attached=True)
        self._listener = LoaderClock(self.clock, attached=True)
        self._wiring = ClockWiring(
            trainer,
            clock=self.clock,
            events=self._events,
            listener=self._listener,
            counts=self._counts,
            owner=self,
        )
        stand_before_trackers(trainer, self)
        return self

    def take_log_values(self, logs: Mapping[str, Any]) -> dict[str, float]:
        """Return the keys to add to a log and forget them: nothing for another log than training's."""
        if not is_training_log(logs):
            return {}
        values, self._pending = self._pending, {}
        return values

    def close_interval(self, state: TrainerState) -> None:
        """End a logging interval: exchange the ranks' rows and prepare the keys. All ranks come here together."""
        if self._account is not None:
            values = self._account.close_interval(state, self.measured_parts).log_values()
            self._pending = values if self._log else {}

    def summary(self) -> dict[str, Any]:
        """Return the run so far as JSON values: this rank's seconds a part (None = not measured) and all ranks'."""
        times = self._last or self.clock.read()
        return {
            "seconds": {part: times.seconds[part] if part in self.measured_parts else None for part in PARTS},
            "total_seconds": times.total_seconds,
            "steps": times.steps,
            "world_size": None if self._account is None else self._account.world_size,
            "attached": self.attached,
            "settings": self._settings,
            "device_idle_share": None if self.timer is None else self.timer.idle_share,
            "ranks": None if self.report is None else self.report.to_json(),
        }

    def stop(self, state: TrainerState) -> None:
        """End the account of a run, also of one that an exception ended; a second call does nothing."""
        if not self.active:
            return
        self.active = False
        stop_listening(self._loader, self._listener)
        self._loader = None
        self._last = self.clock.read()
        if self._write_summary and state.is_world_process_zero:
            write_json(self._folder / SUMMARY_FILE, self.summary())

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock; what a checkpoint brought along is where counting starts."""
        self._loader = kwargs.get("train_dataloader")
        self._hears_loader = listen(self._loader, self._listener)
        reads = args.process_index == 0 or not is_dispatched(self._loader)
        self._listener.run_starts(skips=state.global_step > 0 and is_stream(self._loader), reads=reads)
        self._folder = Path(str(args.output_dir))
        self._pending, self._last = {}, None
        self._settings = settings_of(args)
        self.timer = cuda_timer(args)
        self.active = True
        self._counts.clear()
        self.clock.start()
        self._account = StepAccount(
            args,
            state,
            clock=self.clock,
            counts=self._counts,
            timer=self.timer,
            peak_flops=self._peak_flops or peak_flops_of(args),
            reduce_ranks=self._reduce_ranks,
            reduction=self._time_reduction(),
        )

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Forward and backward begin."""
        if self.active and not self.attached:
            self._listener.step_starts()
        if self.timer is not None:
            self.timer.begin("device_forward_backward")
        self._mark("on_step_begin", control)

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """One accumulated batch is done."""
        self._mark("on_substep_end", control)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The optimizer begins."""
        if self.timer is not None:
            self.timer.end()
            self.timer.begin("device_optimizer")
        self._mark("on_pre_optimizer_step", control)

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The optimizer has stepped."""
        self._mark("on_optimizer_step", control)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The optimizer is done; at a logging step the ranks compare."""
        if self.timer is not None:
            self.timer.end()
            self.timer.collect()
        self.clock.count_step()
        self._mark("on_step_end", control)
        self._close_unattached(state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """At the end of an epoch the Trainer may log, evaluate and save once more."""
        self._mark("on_epoch_end", control)
        self._close_unattached(state, control)

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """A batch of an evaluation is done."""
        self._mark("on_prediction_step", control)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """An evaluation is done."""
        self._mark("on_evaluate", control)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """A checkpoint is written."""
        self._mark("on_save", control)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add the interval's keys, when attached."""
        logs = kwargs.get("logs")
        if logs is not None and is_training_log(logs):
            if self._account is not None:
                self._account.note_flops(state)
            if self.attached:
                add_to_log(logs, state, self.take_log_values(logs))
        self._mark("on_log", control)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the summary and let the loader go."""
        self.stop(state)

    def _time_reduction(self) -> ReductionTimer | None:
        if self._measure_reduction and self._wiring is not None:
            model = self._wiring.trainer.model_wrapped
            self._reduction = time_reduction(model, self._reduction, self.timer, self.clock.time)
        return self._reduction

    def _mark(self, event: str, control: TrainerControl) -> None:
        # attached, the events are timed around all callbacks instead
        if self.active and not self.attached:
            self._events.before(event)
            self._events.after(event, should_log=control.should_log)

    def _close_unattached(self, state: TrainerState, control: TrainerControl) -> None:
        if self.active and not self.attached and control.should_log:
            self.close_interval(state)
