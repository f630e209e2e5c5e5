"""What a plan does not say itself: model, hardware and data, or what an earlier stage measured. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hf_trainplus.budget.costs.flops import Tokens, forward_flops, training_flops
from hf_trainplus.budget.costs.hardware import Hardware
from hf_trainplus.budget.costs.model_shape import ModelShape
from hf_trainplus.budget.keeping.measured import Measured
from hf_trainplus.budget.plans.stage import Stage

_ABOVE_ZERO = ("devices", "usd_per_device_hour", "rows", "evaluation_rows", "length", "per_device_train_batch_size")


@dataclass(frozen=True)
class PlanSetting:
    """Everything here may be unknown; what follows from it is unknown then too.

    Args:
        shape: the model.
        hardware: what it runs on; turns steps into time.
        devices: number of devices, for stages without ``num_processes``.
        usd_per_device_hour: price of one device for one hour in dollars.
        rows: rows of the training data.
        evaluation_rows: rows of the evaluation data.
        length: tokens a row.
        per_device_train_batch_size: the run's own, for stages that do not say.
        gradient_checkpointing: whether blocks are computed twice.
        row_seconds: device-seconds of training a row, as measured; stands in for model and hardware.
        evaluation_row_seconds: device-seconds of evaluating a row, as measured.

    Raises:
        ValueError: a number that is not above 0; an unknown one is None.
    """

    shape: ModelShape | None = None
    hardware: Hardware | None = None
    devices: int = 1
    usd_per_device_hour: float | None = None
    rows: int | None = None
    evaluation_rows: int | None = None
    length: int | None = None
    per_device_train_batch_size: int = 8
    gradient_checkpointing: bool = False
    row_seconds: float | None = None
    evaluation_row_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in _ABOVE_ZERO:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}={value}; allowed are finite numbers above 0.")

    def with_measured(self, measured: Measured, stage: Stage, rows_a_step: int) -> PlanSetting:
        """Return the setting with what the stage that runs took a row.

        Args:
            measured: costs of its steps and evaluations.
            stage: the stage that runs.
            rows_a_step: rows a step over all its devices.

        Example:
            >>> measured = Measured()
            >>> measured.add("step", {"seconds": 2.0})
            >>> stage = Stage("a", budget="max_steps=5")
            >>> PlanSetting(devices=4).with_measured(measured, stage, rows_a_step=32).row_seconds
            0.25
        """
        devices = self.world_size(stage)
        step, evaluation = measured.mean("step"), measured.mean("evaluation")
        rows = self._evaluated_rows(stage)
        return replace(
            self,
            row_seconds=None if step is None else step * devices / rows_a_step,
            evaluation_row_seconds=None if evaluation is None or not rows else evaluation * devices / rows,
        )

    def world_size(self, stage: Stage) -> int:
        """Return the number of processes of a stage."""
        return stage.num_processes or self.devices

    def training_flops(self, tokens: float) -> float | None:
        """Return the operations of training on some tokens."""
        if self.shape is None or self.length is None:
            return None
        counted = Tokens(tokens, self.length)
        return training_flops(self.shape, counted, gradient_checkpointing=self.gradient_checkpointing).total

    def evaluation_flops(self, stage: Stage) -> float | None:
        """Return the operations of one evaluation of a stage."""
        rows = self._evaluated_rows(stage)
        if rows is None or self.length is None or self.shape is None:
            return None
        return forward_flops(self.shape, Tokens(rows * self.length, self.length)).total

    def step_seconds(self, rows_a_step: int, devices: int) -> float | None:
        """Return the seconds of one step."""
        if self.row_seconds is not None:
            return self.row_seconds * rows_a_step / devices
        tokens = None if self.length is None else float(rows_a_step * self.length)
        return self._seconds(None if tokens is None else self.training_flops(tokens), devices)

    def evaluation_seconds(self, stage: Stage, devices: int) -> float | None:
        """Return the seconds of one evaluation of a stage."""
        rows = self._evaluated_rows(stage)
        if self.evaluation_row_seconds is not None and rows is not None:
            return self.evaluation_row_seconds * rows / devices
        return self._seconds(self.evaluation_flops(stage), devices)

    def _evaluated_rows(self, stage: Stage) -> float | None:
        """Rows of one evaluation; a race is counted as the full set, which it never exceeds."""
        rows = self.evaluation_rows
        subset = stage.eval.subset_size if stage.eval and stage.eval.mode == "subset" else None
        if rows is None or subset is None:
            return rows
        return min(rows, subset if subset >= 1 else math.ceil(subset * rows))

    def _seconds(self, flops: float | None, devices: int) -> float | None:
        if flops is None or self.hardware is None:
            return None
        return self.hardware.device_hours(flops) * 3600 / devices
