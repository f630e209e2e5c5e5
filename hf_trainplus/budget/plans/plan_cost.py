"""What each stage of a plan will take, as far as it can be known before anything runs. Pure.

A limit in time, device-hours or money bounds a stage by itself; one in steps, epochs or tokens is turned into time by
the model's operations and the hardware, or by what an earlier stage took. Of several limits the tightest one counts.
What is missing stays None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hf_trainplus.budget.plans.plan_setting import PlanSetting
from hf_trainplus.budget.plans.stage import Stage
from hf_trainplus.budget.stages import StagePlan


@dataclass(frozen=True)
class StageCost:
    """What a stage will take at most; None = cannot be known from what was given.

    Args:
        name: of the stage.
        devices: processes of the stage.
        rows_a_step: rows a step over all devices.
        steps: optimizer steps.
        tokens: tokens trained on.
        flops: operations of training and evaluation.
        evaluations: number of evaluations.
        wall_clock_seconds: time.
        gpu_hours: device-hours.
        usd: dollars.
        ends_by: the limit that is reached first, as far as it is known; None when only a rule ends the stage.
    """

    name: str
    devices: int
    rows_a_step: int | None = None
    steps: int | None = None
    tokens: float | None = None
    flops: float | None = None
    evaluations: int | None = None
    wall_clock_seconds: float | None = None
    gpu_hours: float | None = None
    usd: float | None = None
    ends_by: str | None = None


def predict_plan(plan: StagePlan, setting: PlanSetting) -> tuple[StageCost, ...]:
    """Return the cost of every stage.

    Example:
        >>> plan = StagePlan([{"name": "a", "budget": "gpu_hours=8"}, {"name": "b", "budget": "max_steps=100"}])
        >>> setting = PlanSetting(devices=4, usd_per_device_hour=2.0)
        >>> [(cost.wall_clock_seconds, cost.usd) for cost in predict_plan(plan, setting)]
        [(7200.0, 16.0), (None, None)]
    """
    return tuple(predict_stage(stage, setting) for stage in plan)


def predict_stage(stage: Stage, setting: PlanSetting) -> StageCost:
    """Return the cost of one stage."""
    devices = setting.world_size(stage)
    if not stage.trains:
        return _evaluation_only(stage, setting, devices)
    rows_a_step = _rows_a_step(stage, setting, devices)
    counted = _counted_limits(stage, setting, rows_a_step)
    timed = _timed_limits(stage, setting, devices)
    a_step = setting.step_seconds(rows_a_step, devices)
    candidates = {**timed}
    if a_step is not None:
        candidates |= {name: _with_evaluations(stage, setting, steps, a_step) for name, steps in counted.items()}
    if not candidates:
        ends_by = min(counted, key=counted.__getitem__) if counted else None
        steps = math.floor(counted[ends_by]) if ends_by else None
        return _cost(stage, setting, devices, rows_a_step, steps, None, ends_by)
    ends_by = min(candidates, key=candidates.__getitem__)
    seconds = candidates[ends_by]
    known = counted.get(ends_by)
    fitting = None if a_step is None else _fitting_steps(stage, setting, seconds, a_step)
    return _cost(
        stage, setting, devices, rows_a_step, fitting if known is None else math.floor(known), seconds, ends_by
    )


def _cost(
    stage: Stage,
    setting: PlanSetting,
    devices: int,
    rows_a_step: int,
    steps: int | None,
    seconds: float | None,
    ends_by: str | None,
) -> StageCost:
    tokens = None if steps is None or setting.length is None else float(steps * rows_a_step * setting.length)
    evaluations = _evaluations(stage, setting, steps)
    hours = None if seconds is None else seconds * devices / 3600
    flops = None if tokens is None else setting.training_flops(tokens)
    if flops is not None:
        flops += (evaluations or 0) * (setting.evaluation_flops(stage) or 0.0)
    price = setting.usd_per_device_hour
    return StageCost(
        name=stage.name,
        devices=devices,
        rows_a_step=rows_a_step,
        steps=steps,
        tokens=tokens,
        flops=flops,
        evaluations=evaluations,
        wall_clock_seconds=seconds,
        gpu_hours=hours,
        usd=None if hours is None or price is None else hours * price,
        ends_by=ends_by,
    )


def _evaluation_only(stage: Stage, setting: PlanSetting, devices: int) -> StageCost:
    flops = setting.evaluation_flops(stage)
    seconds = setting.evaluation_seconds(stage, devices)
    hours = None if seconds is None else seconds * devices / 3600
    price = setting.usd_per_device_hour
    return StageCost(
        name=stage.name,
        devices=devices,
        steps=0,
        flops=flops,
        evaluations=1,
        wall_clock_seconds=seconds,
        gpu_hours=hours,
        usd=None if hours is None or price is None else hours * price,
    )


def _rows_a_step(stage: Stage, setting: PlanSetting, devices: int) -> int:
    per_device = stage.rows_a_device(devices, setting.per_device_train_batch_size)
    return stage.global_batch_size or per_device * devices * stage.accumulation(devices, per_device)


def _counted_limits(stage: Stage, setting: PlanSetting, rows_a_step: int) -> dict[str, float]:
    """Limits that can be told in steps: limit -> steps."""
    limits = stage.limits().limits()
    steps = {name: limits[name] for name in ("max_steps",) if name in limits}
    if "tokens" in limits and setting.length is not None:
        steps["tokens"] = limits["tokens"] / (rows_a_step * setting.length)
    an_epoch = _epoch_steps(stage, setting, rows_a_step)
    if "num_train_epochs" in limits and an_epoch is not None:
        steps["num_train_epochs"] = limits["num_train_epochs"] * an_epoch
    return steps


def _epoch_steps(stage: Stage, setting: PlanSetting, rows_a_step: int) -> int | None:
    if setting.rows is None:
        return None
    return math.ceil(setting.rows * (stage.data_fraction or 1.0) / rows_a_step)


def _timed_limits(stage: Stage, setting: PlanSetting, devices: int) -> dict[str, float]:
    """Limits that can be told in seconds: limit -> seconds."""
    limits = stage.limits().limits()
    price = setting.usd_per_device_hour
    seconds = {name: limits[name] for name in ("wall_clock",) if name in limits}
    if "gpu_hours" in limits:
        seconds["gpu_hours"] = limits["gpu_hours"] * 3600 / devices
    if "usd" in limits and price is not None:
        seconds["usd"] = limits["usd"] / price * 3600 / devices
    return seconds


def _evaluations(stage: Stage, setting: PlanSetting, steps: int | None) -> int | None:
    """Evaluations on the stage's own rhythm; a boundary is always evaluated."""
    evaluation = stage.eval
    if steps is None or evaluation is None or evaluation.strategy in (None, "no") or evaluation.schedule == "adaptive":
        return None
    every = evaluation.every or 1
    if evaluation.strategy == "epoch":
        an_epoch = _epoch_steps(stage, setting, _rows_a_step(stage, setting, setting.world_size(stage)))
        if an_epoch is None:
            return None
        every *= an_epoch
    return math.ceil(steps / every)


def _with_evaluations(stage: Stage, setting: PlanSetting, steps: float, a_step: float) -> float:
    one = setting.evaluation_seconds(stage, setting.world_size(stage)) or 0.0
    return steps * a_step + (_evaluations(stage, setting, math.floor(steps)) or 0) * one


def _fitting_steps(stage: Stage, setting: PlanSetting, seconds: float, a_step: float) -> int:
    """Steps that fit into a time, evaluations on the stage's rhythm included."""
    steps = math.floor(seconds / a_step)
    spent = _with_evaluations(stage, setting, steps, a_step)
    return math.floor(steps * seconds / spent) if spent > seconds else steps


def total_known(costs: Sequence[StageCost], name: str) -> float | None:
    """Return the sum of a figure over all stages, None while one of them is not known.

    Example:
        >>> total_known([StageCost("a", 1, usd=2.0), StageCost("b", 1, usd=3.0)], "usd")
        5.0
        >>> total_known([StageCost("a", 1, usd=2.0), StageCost("b", 1)], "usd") is None
        True
    """
    values = [getattr(cost, name) for cost in costs]
    return None if any(value is None for value in values) else float(sum(values))


def later_stages_seconds(plan: StagePlan, stage: int, setting: PlanSetting) -> float | None:
    """Return the seconds of all stages after one, None while one of them is not known.

    Args:
        plan: the plan.
        stage: index of the stage that runs.
        setting: with measured figures, see ``PlanSetting.measured``.
    """
    return total_known([predict_stage(one, setting) for one in plan.stages[stage + 1 :]], "wall_clock_seconds")
