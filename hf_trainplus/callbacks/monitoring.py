"""Everything that PlusTrainer turns on by its ``gpu_monitor`` argument, in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from transformers import Trainer, TrainerCallback

from hf_trainplus.callbacks._wiring import put_around
from hf_trainplus.callbacks.diagnosis import DiagnosisCallback
from hf_trainplus.callbacks.gpu_monitor import GPUMonitorCallback
from hf_trainplus.callbacks.step_clock import StepClockCallback
from hf_trainplus.callbacks.tracker_guard import guard_trackers

Given = TypeVar("Given", bound=TrainerCallback)


@dataclass(frozen=True)
class Monitoring:
    """What ``attach_monitoring`` attached or found; ``gpu_monitor`` and ``diagnosis`` are None when not asked for."""

    step_clock: StepClockCallback
    gpu_monitor: GPUMonitorCallback | None = None
    diagnosis: DiagnosisCallback | None = None


def attach_monitoring(trainer: Trainer, gpu_monitor: bool | float = False) -> Monitoring:
    """Attach the step clock, guard the trackers, and with ``gpu_monitor`` sample devices and diagnose.

    Without ``gpu_monitor`` the Trainer's logs stay as they are: the clock keeps its account and its summary file alone.
    A clock or monitor that the user gave is attached in place of ours, so that its keys reach the Trainer's logs; what
    ``add_callback`` adds later is attached, and guarded, too.

    Args:
        trainer: a trainer whose callbacks are in place.
        gpu_monitor: True samples every second; a number is the seconds between samples, > 0.

    Returns:
        The callbacks.

    Raises:
        TypeError: an interval that is no number.
        ValueError: an interval out of range, or a callback that is attached to another trainer.
    """
    wanted = gpu_monitor is not False
    _take_care(trainer)
    put_around(trainer, "add_callback", partial(_add, trainer))
    clock = _given(trainer, StepClockCallback) or StepClockCallback(log=wanted).attach(trainer)
    monitor = _given(trainer, GPUMonitorCallback)
    if not wanted:
        return Monitoring(clock, monitor)
    monitor = monitor or GPUMonitorCallback(1.0 if gpu_monitor is True else float(gpu_monitor)).attach(trainer)
    diagnosis = DiagnosisCallback(clock, monitor)
    trainer.add_callback(diagnosis)
    return Monitoring(clock, monitor, diagnosis)


def _add(trainer: Trainer, original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    original(*args, **kwargs)
    _take_care(trainer)


def _take_care(trainer: Trainer) -> None:
    guard_trackers(trainer)
    for callback in list(trainer.callback_handler.callbacks):
        if isinstance(callback, (StepClockCallback, GPUMonitorCallback)):
            callback.attach(trainer)


def _given(trainer: Trainer, kind: type[Given]) -> Given | None:
    return next((one for one in trainer.callback_handler.callbacks if isinstance(one, kind)), None)
