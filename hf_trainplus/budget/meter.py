"""Meters: what a run has spent so far, over all its resumes. Pure: the clock and the energy counter are passed in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Progress:
    """How far training is, as the trainer counts it; cumulative over resumes. None = not counted, never 0.

    Args:
        steps: optimizer steps.
        epochs: passes over the training data, a fraction inside one.
        examples: rows of all ranks.
        tokens: input tokens of all ranks.
        flops: floating-point operations of all ranks.
    """

    steps: int = 0
    epochs: float | None = None
    examples: int | None = None
    tokens: int | None = None
    flops: float | None = None


@dataclass(frozen=True)
class Reading:
    """What has been spent: progress, time, device-hours, energy and money. None = not measured, never 0."""

    progress: Progress
    wall_clock_seconds: float
    gpu_hours: float
    energy_kwh: float | None
    usd: float | None

    def spent(self) -> dict[str, float]:
        """Return what is spent by the name of the limit it counts against; what is not measured is left out."""
        amounts = {
            "wall_clock": self.wall_clock_seconds,
            "gpu_hours": self.gpu_hours,
            "max_steps": self.progress.steps,
            "num_train_epochs": self.progress.epochs,
            "tokens": self.progress.tokens,
            "energy_kwh": self.energy_kwh,
            "usd": self.usd,
        }
        return {name: float(amount) for name, amount in amounts.items() if amount is not None}


class Meter:
    """Counts time, device-hours, energy and money; cumulative over resumes, also with another number of devices.

    It counts no steps or tokens itself (the trainer does, and keeps them in its checkpoint), and it does not see what
    a killed session spent after its last checkpoint.

    Args:
        devices: devices of the whole run, >= 1; a CPU rank counts as one.
        usd_per_device_hour: price of one device for one hour in dollars, > 0; None leaves ``usd`` at None.
        clock: seconds from a fixed, unknown point; ``time.monotonic`` or a fake.
        started: reading of ``clock`` at which counting starts, now when None. Give the start of the process to count
            imports and loading too.
        joules: energy drawn so far by the devices of this process, in joules from any fixed point; returns None where
            nothing measures it.
        devices_metered: how many devices ``joules`` covers; the others are taken to draw as much each.
        process: what identifies this process, so that resuming inside the process that saved counts no second twice.

    Raises:
        ValueError: ``devices`` or the price is not above 0.

    Example:
        >>> seconds = iter([0.0, 1800.0])
        >>> meter = Meter(devices=4, usd_per_device_hour=2.0, clock=lambda: next(seconds))
        >>> reading = meter.read(Progress(steps=10))
        >>> reading.wall_clock_seconds, reading.gpu_hours, reading.usd, reading.energy_kwh
        (1800.0, 2.0, 4.0, None)
    """

    def __init__(
        self,
        *,
        devices: int = 1,
        usd_per_device_hour: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        started: float | None = None,
        joules: Callable[[], float | None] | None = None,
        devices_metered: int = 1,
        process: str | None = None,
    ) -> None:
        if devices < 1 or devices_metered < 1:
            raise ValueError(f"devices={devices}, devices_metered={devices_metered}; allowed are integers >= 1.")
        if usd_per_device_hour is not None and not usd_per_device_hour > 0:
            raise ValueError(
                f"usd_per_device_hour={usd_per_device_hour}; allowed are prices above 0. Leave it out for no price."
            )
        self.devices = devices
        self.usd_per_device_hour = usd_per_device_hour
        self._clock = clock
        self._started = clock() if started is None else started
        self._joules = joules
        self._joules_scale = devices / devices_metered
        self._joules_started = joules() if joules else None
        self._process = process
        self._seconds, self._gpu_hours, self._usd = 0.0, 0.0, 0.0
        # None once a session that could not measure energy is part of the total
        self._energy_kwh: float | None = None if self._joules_started is None else 0.0

    def read(self, progress: Progress) -> Reading:
        """Return what has been spent up to now."""
        seconds = self._clock() - self._started
        gpu_hours = seconds * self.devices / 3600
        price = self.usd_per_device_hour
        return Reading(
            progress,
            wall_clock_seconds=self._seconds + seconds,
            gpu_hours=self._gpu_hours + gpu_hours,
            energy_kwh=self._read_energy(),
            usd=None if price is None else self._usd + gpu_hours * price,
        )

    def _read_energy(self) -> float | None:
        joules = self._joules() if self._joules else None
        if joules is None or self._joules_started is None or self._energy_kwh is None:
            return None
        return self._energy_kwh + (joules - self._joules_started) * self._joules_scale / JOULES_PER_KWH

    def state(self) -> dict[str, Any]:
        """Return what a later session needs to go on counting; plain JSON values."""
        reading = self.read(Progress())
        return {
            "wall_clock_seconds": reading.wall_clock_seconds,
            "gpu_hours": reading.gpu_hours,
            "energy_kwh": reading.energy_kwh,
            "usd": reading.usd,
            "devices": self.devices,
            "process": self._process,
            "process_seconds": self._clock() - self._started,
        }

    def resume(self, saved: Mapping[str, Any], uncounted_seconds: float = 0.0) -> None:
        """Go on from what an earlier session saved.

        Saved by this very process (a second ``train()`` call), the seconds that both sessions share are counted once.
        A session that had no price is charged at today's; energy that a session could not measure leaves the total
        at None.

        Args:
            saved: what ``state`` returned.
            uncounted_seconds: what the other process still took after it had saved, e.g. for writing the checkpoint.
        """
        same = self._process is not None and saved.get("process") == self._process
        more = 0.0 if same else uncounted_seconds
        self._seconds = float(saved["wall_clock_seconds"]) + more
        more_hours = more * float(saved["devices"]) / 3600
        self._gpu_hours = float(saved["gpu_hours"]) + more_hours
        self._energy_kwh = saved["energy_kwh"]
        price = self.usd_per_device_hour or 0.0
        self._usd = self._gpu_hours * price if saved["usd"] is None else float(saved["usd"]) + more_hours * price
        if same:
            self._started += float(saved["process_seconds"])
