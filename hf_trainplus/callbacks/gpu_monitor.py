"""The callback that samples devices and the machine in the background."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from hf_trainplus.callbacks._files import LineFile, write_json
from hf_trainplus.callbacks._guarded import GuardedCallback
from hf_trainplus.callbacks._stack_watch import watch_caller
from hf_trainplus.callbacks._torch_devices import torch_cuda_uuids, torch_mps
from hf_trainplus.callbacks._wiring import add_to_log, is_training_log, put_around, stand_before_trackers
from hf_trainplus.monitor.device_log import device_log_values
from hf_trainplus.monitor.devices import Host, OpenDevices, open_devices
from hf_trainplus.monitor.sampler import Sampler, check_interval, device_facts

logger = logging.get_logger("hf_trainplus")

_FILE_EVERY_SECONDS = 10.0


class GPUMonitorCallback(GuardedCallback):
    """Sample devices and the machine every ``interval`` seconds, apart for training, waiting, evaluation and saving.

    Works with any Trainer. ``GPUMonitorCallback().attach(trainer)`` stands before the trackers and adds its keys to
    the Trainer's training logs and history; unattached (upstream hands callbacks no trainer) it keeps
    ``trainplus/devices.jsonl`` in the output folder, a line a training log and at most one in ten seconds. Both leave
    ``trainplus/devices.json``, the summary, at the end, also after an exception. The process with local rank 0 samples
    the devices of its machine, the others sample nothing. Sampling never logs, never synchronises a device and never
    stops training; without a GPU it samples the machine alone. Training on the CPU, it does not look at GPUs.

    Logged keys: the table of ``device_log_values``.

    Args:
        interval: seconds between samples, above 0 and at most a day.
        host: sample processor, memory, disk and network too.
        write_files: keep the files.
        open_with: opens the devices in place of ``open_devices`` (your own source, a fake).
        clock: seconds from a fixed, unknown point.

    Raises:
        TypeError: ``interval`` is no number.
        ValueError: ``interval`` out of range.

    Example:
        >>> GPUMonitorCallback(interval=0.5).sampler is None     # nothing is opened before training begins
        True
    """

    def __init__(
        self,
        interval: float = 1.0,
        *,
        host: bool = True,
        write_files: bool = True,
        open_with: Callable[[], OpenDevices] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_interval(interval)
        self.sampler: Sampler | None = None
        self._interval = interval
        self._host = host
        self._write_files = write_files
        self._open_with = open_with
        self._clock = clock
        self._opened: OpenDevices | None = None
        self._trainer: Trainer | None = None
        self._folder = Path(".")
        self._file_name = "devices"
        self._lines: LineFile | None = None
        self._line_at: float | None = None
        self._ending = threading.Lock()

    @property
    def attached(self) -> bool:
        """Whether ``attach`` was called."""
        return self._trainer is not None

    def attach(self, trainer: Trainer) -> GPUMonitorCallback:
        """Add this callback to a trainer, before its trackers; a second call does nothing.

        Raises:
            ValueError: attached to another trainer already.
        """
        if self._trainer is None:
            self._trainer = trainer
            put_around(trainer, "train", self._train)
            stand_before_trackers(trainer, self)
        elif self._trainer is not trainer:
            raise ValueError("this GPUMonitorCallback is attached to another trainer; make one for each trainer.")
        return self

    def take_log_values(self, logs: Mapping[str, Any]) -> dict[str, float]:
        """Return the keys to add to a log and begin a new window: nothing for another log than training's."""
        if self.sampler is None or not is_training_log(logs):
            return {}
        window = self.sampler.take_window()
        # a log that comes sooner than the next sample has nothing to tell
        return device_log_values(window, self.sampler.cost()) if window.names() else {}

    def summary(self) -> dict[str, Any] | None:
        """Return devices, statistics and own cost as JSON values; None when this process does not sample."""
        if self.sampler is None or self._opened is None:
            return None
        cost = self.sampler.cost()
        return {
            "devices": device_facts(self._opened),
            "interval_seconds": self._interval,
            "samples": cost.samples,
            "missed_samples": cost.missed,
            "own_cpu_percent": cost.cpu_percent,
            "wall_seconds": cost.wall_seconds,
            "statistics": self.sampler.run_statistics(),
        }

    def stop(self) -> None:
        """End sampling, write the summary and let go of the driver's library; a second call does nothing."""
        if self.sampler is not None and self._lines is not None:
            self.sampler.stop()
            self._report_notices()
            self._end()

    def _end(self) -> None:
        """Write the summary and let go; also by the sampler's thread, when an exception ended a training unseen."""
        with self._ending:
            if self._opened is None or self._lines is None:
                return
            if self._write_files:
                write_json(self._folder / f"{self._file_name}.json", self.summary())
            self._opened.close()
            self._lines = None
        atexit.unregister(self.stop)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the devices and begin to sample."""
        self.stop()
        self.sampler = None
        if not state.is_local_process_zero:
            return
        self._folder = Path(str(args.output_dir)) / "trainplus"
        if not state.is_world_process_zero:
            self._file_name = f"devices-rank{args.process_index}"
        self._lines, self._line_at = LineFile(self._folder / f"{self._file_name}.jsonl"), None
        self._opened = self._open_with() if self._open_with is not None else _open_for(args)
        # psutil asks for a folder that exists
        output = str(args.output_dir)
        host = Host(path=output if os.path.isdir(output) else ".") if self._host else None
        self.sampler = Sampler(
            self._opened,
            host,
            interval=self._interval,
            alive=watch_caller(),
            abandoned=self._end,
            clock=self._clock,
        )
        self._report_notices()
        atexit.register(self.stop)  # an exception that nobody catches ends the thread with the process
        self.sampler.start()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """A training step runs."""
        self._enter("train_step")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """What comes next is what has been decided."""
        self._enter_next(control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """What comes next is what has been decided."""
        self._enter_next(control)

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """An evaluation runs, whoever decided it."""
        if self.sampler is not None and self.sampler.timeline.phase != "evaluation":
            self._enter("evaluation")

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """An evaluation is done."""
        self._enter("saving" if control.should_save else "waiting")

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """A checkpoint is written."""
        self._enter("waiting")

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add the window's keys when attached; keep a line in the file otherwise."""
        self._report_notices()
        logs = kwargs.get("logs")
        if logs is None or self.sampler is None:
            return
        if self.attached:
            add_to_log(logs, state, self.take_log_values(logs))
        elif self._write_files and is_training_log(logs) and self._line_is_due():
            values = self.take_log_values(logs)
            if values and self._lines is not None:
                self._lines.append({"step": state.global_step, **values})

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """End sampling."""
        self.stop()

    def _train(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            self.stop()

    def _enter(self, phase: str) -> None:
        if self.sampler is not None:
            self.sampler.timeline.enter(phase)

    def _enter_next(self, control: TrainerControl) -> None:
        if control.should_evaluate:
            self._enter("evaluation")
        else:
            self._enter("saving" if control.should_save else "waiting")

    def _line_is_due(self) -> bool:
        now = self._clock()
        due = self._line_at is None or now - self._line_at >= _FILE_EVERY_SECONDS
        if due:
            self._line_at = now
        return due

    def _report_notices(self) -> None:
        for notice in [] if self.sampler is None else self.sampler.drain_notices():
            logger.warning(notice)


def _open_for(args: TrainingArguments) -> OpenDevices:
    """Open the devices that the processes of this machine train on."""
    if args.device.type not in ("cuda", "mps"):
        return OpenDevices()
    opened = open_devices(torch_uuids=torch_cuda_uuids(), torch_mps=torch_mps())
    # torchrun and accelerate set it; one process drives all devices that it sees
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if local > 1:
        opened.keep_first(local)
    return opened
