"""Everything that PlusTrainer turns on by its ``gpu_monitor`` argument, in one call."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import Trainer

from hf_trainplus.callbacks.diagnosis import DiagnosisCallback
from hf_trainplus.callbacks.gpu_monitor import GPUMonitorCallback
from hf_trainplus.callbacks.step_clock import StepClockCallback
from hf_trainplus.callbacks.tracker_guard import guard_trackers


@dataclass(frozen=True)
class Monitoring:
    """What ``attach_monitoring`` attached; ``gpu_monitor`` and ``diagnosis`` are None when not asked for."""

    step_clock: StepClockCallback
    gpu_monitor: GPUMonitorCallback | None = None
    diagnosis: DiagnosisCallback | None = None


def attach_monitoring(trainer: Trainer, gpu_monitor: bool | float = False) -> Monitoring:
    """Attach the step clock, guard the trackers, and with ``gpu_monitor`` sample devices and diagnose.

    Without ``gpu_monitor`` the Trainer's logs stay as they are: the clock keeps its account and its summary file alone.

    Args:
        trainer: a trainer whose callbacks are in place.
        gpu_monitor: True samples every second; a number is the seconds between samples, > 0.

    Returns:
        The callbacks.

    Raises:
        ValueError: an interval not above 0.
    """
    wanted = gpu_monitor is not False
    guard_trackers(trainer)
    clock = StepClockCallback(log=wanted).attach(trainer)
    if not wanted:
        return Monitoring(clock)
    monitor = GPUMonitorCallback(1.0 if gpu_monitor is True else float(gpu_monitor)).attach(trainer)
    diagnosis = DiagnosisCallback(clock, monitor)
    trainer.add_callback(diagnosis)
    return Monitoring(clock, monitor, diagnosis)
