"""`trainplus plan show`: the stages of a plan and what each will take, before anything runs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from hf_trainplus.budget.costs.hardware import Hardware
from hf_trainplus.budget.costs.model_reading import read_model
from hf_trainplus.budget.costs.model_shape import ModelShape
from hf_trainplus.budget.plan_file import read_plan
from hf_trainplus.budget.plans.plan_cost import StageCost, predict_plan, total_known
from hf_trainplus.budget.plans.plan_setting import PlanSetting
from hf_trainplus.budget.plans.stage import Stage
from hf_trainplus.budget.stages import StagePlan
from hf_trainplus.budget.units import format_count, format_duration, parse_count

_HELP = """Show the stages of a plan with what each is predicted to take, before anything runs.

Limits in time, GPU-hours and money need nothing more; for limits in steps, epochs or tokens give the model, the device
and the length of a row. "-" is what cannot be known from what was given. All errors of the file are shown at once.

Example: trainplus plan show plan.yaml --model gpt2 --sequence-length 512 --device a100-sxm-80gb --devices 8 --rows 1e6
"""


def register(app: typer.Typer) -> None:
    """Add the command group to the main command."""
    group = typer.Typer(no_args_is_help=True, help="Look at staged plans.")
    group.command(name="show", help=_HELP)(show)
    # a callback keeps the name of a group's only command
    group.callback()(_group)
    app.add_typer(group, name="plan")


def _group() -> None:
    """Look at staged plans."""


def show(
    plan: Annotated[Path, typer.Argument(help="YAML or JSON file.")],
    model: Annotated[str | None, typer.Option(help="Name on the Hub or folder.")] = None,
    parameters: Annotated[str | None, typer.Option(help="Number of parameters instead of a model.")] = None,
    sequence_length: Annotated[int | None, typer.Option(help="Tokens a row.")] = None,
    rows: Annotated[str | None, typer.Option(help="Rows of the training data.")] = None,
    eval_rows: Annotated[str | None, typer.Option(help="Rows of the evaluation data.")] = None,
    batch_size: Annotated[int, typer.Option(help="Rows a device, for stages that do not say.")] = 8,
    device: Annotated[str | None, typer.Option(help="Device of the table, e.g. h100-sxm.")] = None,
    peak_tflops: Annotated[float | None, typer.Option(help="Dense peak of a device that is not in the table.")] = None,
    devices: Annotated[int | None, typer.Option(help="Number of devices, for stages without num_processes.")] = None,
    utilisation: Annotated[float, typer.Option(help="Share of the peak that is reached.")] = 0.4,
    scaling_efficiency: Annotated[float, typer.Option(help="Throughput of n devices over n times one.")] = 1.0,
    usd_per_device_hour: Annotated[float | None, typer.Option(help="Price of one device for an hour.")] = None,
    gradient_checkpointing: Annotated[bool, typer.Option(help="Blocks are computed twice.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Print the stages; exit code 2 for a plan that cannot be used and for wrong use."""
    try:
        number = 1 if devices is None else devices
        # first what was typed, then the file: a wrong number must not be found in every stage
        _above_zero({"--devices": devices, "--batch-size": batch_size, "--sequence-length": sequence_length})
        stages = read_plan(plan, world_size=devices)
        setting = PlanSetting(
            shape=_shape(model, parameters),
            hardware=_hardware(device, peak_tflops, number, utilisation, scaling_efficiency),
            devices=number,
            usd_per_device_hour=usd_per_device_hour,
            rows=_rows(rows, "--rows"),
            evaluation_rows=_rows(eval_rows, "--eval-rows"),
            length=sequence_length,
            per_device_train_batch_size=batch_size,
            gradient_checkpointing=gradient_checkpointing,
        )
        costs = predict_plan(stages, setting)
    except (ValueError, FileNotFoundError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    if as_json:
        typer.echo(json.dumps(plan_json(stages, costs)))
    else:
        print_plan(stages, costs)


def _above_zero(numbers: dict[str, int | None]) -> None:
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise ValueError(f"{name} is {number}; allowed are whole numbers of at least 1.")


def _shape(model: str | None, parameters: str | None) -> ModelShape | None:
    if model is not None and parameters is not None:
        raise ValueError(f"--model is {model!r} and --parameters {parameters!r}; give at most one of them.")
    if parameters is not None:
        return read_model(parse_count(parameters, "--parameters"))
    return None if model is None else read_model(model)


def _hardware(
    device: str | None, peak_tflops: float | None, devices: int, utilisation: float, scaling_efficiency: float
) -> Hardware | None:
    if device is not None or peak_tflops is not None:
        return Hardware(
            device, peak_tflops, devices=devices, utilisation=utilisation, scaling_efficiency=scaling_efficiency
        )
    if (utilisation, scaling_efficiency) != (Hardware.utilisation, Hardware.scaling_efficiency):
        raise ValueError(
            "--utilisation and --scaling-efficiency say nothing without a device; add --device a100-sxm-80gb."
        )
    return None


def _rows(text: str | None, name: str) -> int | None:
    number = None if text is None else parse_count(text, name)
    if number is not None and not number.is_integer():
        raise ValueError(f"{name} is {text!r}; allowed are whole numbers. Write {name} {math.ceil(number)}.")
    return None if number is None else int(number)


_TOTALS = ("wall_clock_seconds", "gpu_hours", "flops", "usd")


def plan_json(plan: StagePlan, costs: tuple[StageCost, ...]) -> dict[str, Any]:
    """Return a plan and its costs as plain values; what is not known is None."""
    settings = plan.to_dict()["stages"]
    stages = [{**one, "predicted": asdict(cost)} for one, cost in zip(settings, costs, strict=True)]
    return {"name": plan.name, "stages": stages, "total": {name: total_known(costs, name) for name in _TOTALS}}


_COLUMNS = ("stage", "budget", "batch", "steps", "tokens", "FLOPs", "evaluations", "wall clock", "GPU-hours", "USD")


def print_plan(plan: StagePlan, costs: tuple[StageCost, ...]) -> None:
    """Print a table of the stages and, below it, when each moves on."""
    table = Table()
    for name in _COLUMNS:
        # of what a narrow terminal cannot hold in one line nothing is cut off
        table.add_column(name, overflow="fold")
    for stage, cost in zip(plan, costs, strict=True):
        table.add_row(*_row(stage, cost))
    seconds, hours, flops, usd = (total_known(costs, name) for name in _TOTALS)
    table.add_section()
    total = [_count(flops), "", _duration(seconds), _count(hours), _count(usd)]
    table.add_row("total", "", "", "", "", *total)
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, Console(width=10_000).measure(table).maximum)
    console.print(table)
    for stage in plan:
        console.print(f"{stage.name}: {_moves(stage)}", highlight=False)


def _row(stage: Stage, cost: StageCost) -> list[str]:
    budget = str(stage.limits()) or ("evaluation only" if not stage.trains else "none")
    return [
        stage.name,
        budget.replace(",", ", "),
        _count(cost.rows_a_step),
        _count(cost.steps),
        _count(cost.tokens),
        _count(cost.flops),
        _count(cost.evaluations),
        _duration(cost.wall_clock_seconds),
        _count(cost.gpu_hours),
        _count(cost.usd),
    ]


def _moves(stage: Stage) -> str:
    if not stage.trains:
        return "evaluates, then moves on"
    rules = {
        "stops": stage.stop_when,
        f"falls back to {stage.fall_back_to}": stage.fall_back_when,
        "moves on": stage.advance_when,
    }
    parts = [f"{what} when {rule.describe()}" for what, rule in rules.items() if rule is not None]
    if stage.limits():
        parts.append(f"{'stops' if stage.on_budget_spent == 'stop' else 'moves on'} when the budget is spent")
    return "; ".join(parts)


def _count(value: float | None) -> str:
    return "-" if value is None else format_count(value)


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)
