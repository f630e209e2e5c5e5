"""What is known about a run, as plain numbers; None or absent where it was not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hf_trainplus.monitor.rank_table import Spread
from hf_trainplus.monitor.step_clock import NOT_TRAINING


@dataclass(frozen=True)
class Series:
    """A logged value over steps.

    Args:
        steps: (n,) ascending.
        values: (n,) values, NaN or infinite ones included.

    Example:
        >>> Series.of([1, 2], [0.5, float("nan")]).finite().values.tolist()
        [0.5]
    """

    steps: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    values: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @staticmethod
    def of(steps: npt.ArrayLike, values: npt.ArrayLike) -> Series:
        """Build a series from two sequences of equal length.

        Raises:
            ValueError: unequal lengths.
        """
        x, y = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
        if x.shape != y.shape:
            raise ValueError(f"steps has shape {x.shape} and values {y.shape}; allowed are equal lengths.")
        return Series(x, y)

    def __len__(self) -> int:
        return len(self.steps)

    def finite(self) -> Series:
        """Return the part that is finite."""
        kept = np.isfinite(self.values)
        return Series(self.steps[kept], self.values[kept])


@dataclass(frozen=True)
class DeviceEvidence:
    """One device over a run; percentages 0 to 100, memory in GiB.

    ``utilization_percent`` is None where it cannot be measured (MIG, WSL, vGPU), which is never the same as idle.
    """

    index: int
    name: str | None = None
    utilization_percent: float | None = None
    memory_used_gib: float | None = None
    memory_total_gib: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    power_throttled_percent: float | None = None
    thermal_throttled_percent: float | None = None


@dataclass(frozen=True)
class AllocatorEvidence:
    """The caching allocator of this process at its peak, in GiB, and how often it had to start over."""

    allocated_gib: float
    reserved_gib: float
    total_gib: float | None = None
    retries: int | None = None


@dataclass(frozen=True)
class Settings:
    """The arguments that a rule reads or a next step may name; None = not known."""

    dataloader_num_workers: int | None = None
    per_device_train_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    logging_steps: float | None = None
    eval_steps: float | None = None
    save_steps: float | None = None
    cpus_per_process: int | None = None
    eval_confidence: float | None = None


@dataclass(frozen=True)
class Evidence:
    """Everything that the rules read.

    Args:
        steps: optimizer steps that were timed.
        step_seconds: training time a step.
        shares: part of ``StepClock`` -> share of wall-clock time, 0 to 1; an absent part was not measured.
        spreads: name -> spread over ranks, in seconds over ``steps`` (parts, ``own`` work, ``total``).
        world_size: ranks; None where no record tells.
        device_idle_share: how often the device had nothing queued when the host had just queued a pass, 0 to 1.
        communication_share: share of the time that gradient reduction is waited for, where a hook measures it.
        devices: the devices.
        allocator: the caching allocator, where there is one.
        settings: arguments.
        train_loss: the Trainer's logs.
        eval_loss: evaluations.
        eval_loss_ci_low: lower ends of the evaluations' intervals, at the steps of ``eval_loss``; empty without.
        eval_loss_ci_high: upper ends.
        grad_norm: the Trainer's logs.
        nonfinite_targets: rows with a NaN or infinite loss that evaluations counted.
    """

    steps: int | None = None
    step_seconds: float | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    world_size: int | None = None
    device_idle_share: float | None = None
    communication_share: float | None = None
    devices: tuple[DeviceEvidence, ...] = ()
    allocator: AllocatorEvidence | None = None
    settings: Settings = field(default_factory=Settings)
    train_loss: Series = field(default_factory=Series)
    eval_loss: Series = field(default_factory=Series)
    eval_loss_ci_low: Series = field(default_factory=Series)
    eval_loss_ci_high: Series = field(default_factory=Series)
    grad_norm: Series = field(default_factory=Series)
    nonfinite_targets: int = 0

    def timed(self, least_steps: int) -> bool:
        """Tell whether at least so many steps were timed."""
        return self.steps is not None and self.steps >= least_steps and bool(self.shares)

    def of_a_step(self, share: float) -> float:
        """Turn a share of wall-clock time into one of the time that steps take: without evaluation, saving, skipping.

        Example:
            >>> Evidence(shares={"evaluation": 0.5, "data_wait": 0.2}).of_a_step(0.2)
            0.4
        """
        training = 1.0 - sum(self.shares.get(part, 0.0) for part in NOT_TRAINING)
        return share / training if training > 0 else 0.0

    def largest_share(self, part: str) -> float:
        """Return the share of wall-clock time of a part on the rank that spends most on it; 0 where not measured.

        What one rank does alone, such as writing logs, holds all of them up: the mean over ranks would hide it.

        Example:
            >>> spreads = {"logging": Spread(0.0, 2.0, 8.0, 0), "total": Spread(10.0, 10.0, 10.0, 0)}
            >>> Evidence(shares={"logging": 0.2}, spreads=spreads).largest_share("logging")
            0.8
        """
        spread, total = self.spreads.get(part), self.spreads.get("total")
        if spread is None or total is None or total.mean <= 0:
            return self.shares.get(part, 0.0)
        return spread.maximum / total.mean

    @property
    def utilization_percent(self) -> float | None:
        """Mean use over devices; None when any cannot be measured or there is none."""
        uses = [device.utilization_percent for device in self.devices]
        known = [use for use in uses if use is not None]
        return sum(known) / len(known) if known and len(known) == len(uses) else None

    @property
    def memory_share(self) -> float | None:
        """Largest share of a device's memory in use, 0 to 1; None when unknown."""
        shares = [
            device.memory_used_gib / device.memory_total_gib
            for device in self.devices
            if device.memory_used_gib is not None and device.memory_total_gib
        ]
        return max(shares) if shares else None
