"""`trainplus plan show`: the stages of a plan and what each will take, before anything runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from hf_trainplus.budget.costs.hardware import Hardware
from hf_trainplus.budget.costs.model_reading import read_model
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
        stages = read_plan(plan, world_size=devices)
        given = model if model is not None else None if parameters is None else parse_count(parameters, "--parameters")
        known = device is not None or peak_tflops is not None
        setting = PlanSetting(
            shape=None if given is None else read_model(given),
            hardware=None
            if not known
            else Hardware(
                device,
                peak_tflops,
                devices=devices or 1,
                utilisation=utilisation,
                scaling_efficiency=scaling_efficiency,
            ),
            devices=devices or 1,
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


def _rows(text: str | None, name: str) -> int | None:
    return None if text is None else int(parse_count(text, name))


_TOTALS = ("wall_clock_seconds", "gpu_hours", "flops", "usd")


def plan_json(plan: StagePlan, costs: tuple[StageCost, ...]) -> dict[str, Any]:
    """Return a plan and its costs as plain values; what is not known is None."""
    settings = plan.to_dict()["stages"]
    stages = [{**one, "predicted": asdict(cost)} for one, cost in zip(settings, costs, strict=True)]
    return {"name": plan.name, "stages": stages, "total": {name: total_known(costs, name) for name in _TOTALS}}


_COLUMNS = ("stage", "budget", "batch", "steps", "tokens", "FLOPs", "evaluations", "wall clock", "GPU-hours", "USD")


def print_plan(plan: StagePlan, costs: tuple[StageCost, ...]) -> None:
    """Print a table of the stages and, below it, when each moves on."""
    table = Table(*_COLUMNS)
    for stage, cost in zip(plan, costs, strict=True):
        table.add_row(*_row(stage, cost))
    seconds, hours, flops, usd = (total_known(costs, name) for name in _TOTALS)
    table.add_section()
    total = [_count(flops), "", _duration(seconds), _count(hours), _count(usd)]
    table.add_row("total", "", "", "", "", *total)
    console = Console()
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
