"""What `trainplus estimate` prints: rows for a person, one flat mapping for a machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from hf_trainplus.budget.cost import CostEstimate
from hf_trainplus.budget.costs.memory import GIB
from hf_trainplus.budget.from_run import RunSoFar
from hf_trainplus.budget.keeping.measured import Phase
from hf_trainplus.budget.remaining import MEASURED_STEPS, OPEN_STEPS
from hf_trainplus.budget.units import format_count, format_duration

Row = tuple[str, str, str]


def cost_json(cost: CostEstimate) -> dict[str, Any]:
    """Return an estimate as plain values; what is not known is None.

    Example:
        >>> from hf_trainplus.budget.cost import estimate_cost
        >>> cost_json(estimate_cost(1e9, tokens=1e9, peak_tflops=100))["training_flops"]
        6e+18
    """
    memory = cost.memory
    return {
        "model": cost.shape.name,
        "parameters": cost.shape.parameters,
        "activated_parameters": cost.shape.activated_parameters,
        "trainable_parameters": cost.shape.trainable_parameters,
        "training_flops": cost.training_flops,
        "training_flops_parts": {
            "forward": cost.training.forward,
            "attention": cost.training.attention,
            "input_gradient": cost.training.input_gradient,
            "weight_gradient": cost.training.weight_gradient,
            "recomputation": cost.training.recomputation,
        },
        "evaluation_flops": cost.evaluation_flops,
        "training_to_evaluation": cost.training_to_evaluation,
        "evaluations": cost.evaluations,
        "training_gpu_hours": cost.training_gpu_hours,
        "evaluation_gpu_hours": cost.evaluation_gpu_hours,
        "gpu_hours": cost.gpu_hours,
        "devices": cost.hardware.devices,
        "wall_clock_seconds": cost.wall_clock_seconds,
        "memory_bytes": None if memory is None else {**vars(memory), "states": memory.states, "total": memory.total},
        "fits": cost.fits,
        "energy_kwh": cost.energy_kwh,
        "usd": cost.usd,
        "notes": list(cost.notes),
    }


def cost_rows(cost: CostEstimate) -> list[Row]:
    """Return an estimate as rows: what, how much, how it was found."""
    hardware = cost.hardware
    rows: list[Row] = [
        ("parameters", format_count(cost.shape.parameters), cost.shape.name),
        ("activated a token", format_count(cost.shape.activated_parameters), "weights that are multiplied"),
        ("trainable", format_count(cost.shape.trainable_parameters), ""),
        ("training", f"{format_count(cost.training_flops)} FLOPs", _parts(cost)),
    ]
    if cost.evaluation_flops is not None:
        rows.append(("one evaluation", f"{format_count(cost.evaluation_flops)} FLOPs", "2·N·D and attention"))
        rows.append(("training : evaluation", f"{format_count(cost.training_to_evaluation or 0.0)} : 1", ""))
    rows.append(("training", f"{format_count(cost.training_gpu_hours)} GPU-hours", _speed(cost)))
    if cost.evaluation_gpu_hours is not None:
        rows.append(("one evaluation", f"{format_count(cost.evaluation_gpu_hours)} GPU-hours", f"× {cost.evaluations}"))
    rows.append(
        (
            "wall clock",
            format_duration(cost.wall_clock_seconds),
            f"{hardware.devices} device{'s' if hardware.devices > 1 else ''} at a scaling efficiency of "
            f"{hardware.scaling_efficiency:g}",
        )
    )
    rows.extend(_memory_rows(cost))
    if cost.energy_kwh is not None:
        rows.append(
            ("energy", f"{format_count(cost.energy_kwh)} kWh", "at the largest power of the board, if not given")
        )
    if cost.usd is not None:
        rows.append(("price", f"{format_count(cost.usd)} USD", f"{hardware.usd_per_device_hour:g} USD a device-hour"))
    return rows


def _parts(cost: CostEstimate) -> str:
    parts = {
        "forward": cost.training.forward,
        "attention": cost.training.attention,
        "input gradients": cost.training.input_gradient,
        "weight gradients": cost.training.weight_gradient,
        "recomputation": cost.training.recomputation,
    }
    return ", ".join(f"{name} {value / cost.training_flops:.0%}" for name, value in parts.items() if value)


def _speed(cost: CostEstimate) -> str:
    entry = cost.hardware.table_entry() if cost.hardware.peak_tflops is None else None
    peak = cost.hardware.peak_tflops or (entry.peak_tflops(cost.hardware.precision) if entry else 0.0)
    source = f" ({entry.source})" if entry else ""
    return f"{peak:g} TFLOP/s{source} at a utilisation of {cost.hardware.utilisation:.0%}"


def _memory_rows(cost: CostEstimate) -> list[Row]:
    memory = cost.memory
    if memory is None:
        return []
    states = f"weights {_gib(memory.weights)}, gradients {_gib(memory.gradients)}, optimizer {_gib(memory.optimizer)}"
    if memory.casts:
        states += f", 16-bit copies {_gib(memory.casts)}"
    rows: list[Row] = [("memory of states", f"{_gib(memory.states)} GiB", states)]
    if memory.activations is not None and memory.logits is not None and memory.total is not None:
        rows.append(("memory of a batch", f"{_gib(memory.activations + memory.logits)} GiB", _batch(cost)))
        fits = {True: "fits", False: "does not fit", None: "size of the device not known"}[cost.fits]
        rows.append(("memory in all", f"{_gib(memory.total)} GiB", fits))
    return rows


def _batch(cost: CostEstimate) -> str:
    memory = cost.memory
    return f"activations {_gib(memory.activations or 0)}, logits {_gib(memory.logits or 0)}" if memory else ""


def _gib(value: float) -> str:
    return f"{value / GIB:.1f}"


def run_json(run: RunSoFar) -> dict[str, Any]:
    """Return what a run measured as plain values; ``time_left`` is None before 20 steps are measured."""
    left = run.time_left()
    return {
        "checkpoint": str(run.checkpoint),
        "step": run.step,
        "max_steps": run.rhythm.max_steps,
        "stop_reason": run.stop_reason,
        "measured_steps": run.measured.count("step"),
        "step_seconds": run.measured.mean("step"),
        "evaluation_seconds": run.measured.mean("evaluation"),
        "save_seconds": run.measured.mean("save"),
        "spent": run.reading.spent(),
        "limits": run.budget.limits(),
        "time_left": None if left is None else vars(left),
    }


_PHASE_NAMES: dict[Phase, str] = {"step": "a step", "evaluation": "an evaluation", "save": "a save"}


def run_rows(run: RunSoFar) -> list[Row]:
    """Return what a run measured as rows."""
    measured = run.measured
    planned = f" of {run.rhythm.max_steps}" if run.rhythm.max_steps < OPEN_STEPS else ""
    rows: list[Row] = [("step", f"{run.step}{planned}", str(run.checkpoint))]
    for phase, name in _PHASE_NAMES.items():
        mean = measured.mean(phase)
        if mean is not None:
            rows.append((name, format_duration(mean), f"mean of {measured.count(phase)}"))
    rows.append(("spent", format_duration(run.reading.wall_clock_seconds), _amounts(run)))
    left = run.time_left()
    if run.stop_reason is not None:
        rows.append(("ended", run.stop_reason, ""))
    elif run.later_stages_seconds is None:
        rows.append(("time left", "not known", "of a later stage it is not known when it ends"))
    elif left is None:
        rows.append(("time left", "not known yet", f"{measured.count('step')} of {MEASURED_STEPS} steps measured"))
    else:
        later = f", later stages {format_duration(left.later_stages)}" if left.later_stages else ""
        parts = f"steps {format_duration(left.steps)}, evaluation {format_duration(left.evaluation)}, "
        rows.append(
            (
                "time left",
                format_duration(left.seconds),
                f"{parts}saving {format_duration(left.saving)}{later}; ends by {left.ends_by}",
            )
        )
    return rows


def _amounts(run: RunSoFar) -> str:
    amounts = {"GPU-hours": run.reading.gpu_hours, "kWh": run.reading.energy_kwh, "USD": run.reading.usd}
    return ", ".join(f"{amount:.3g} {unit}" for unit, amount in amounts.items() if amount is not None)


def print_rows(rows: Sequence[Row], notes: Sequence[str] = ()) -> None:
    """Print rows as a table, and notes below it."""
    table = Table(show_header=False, box=None)
    for row in rows:
        table.add_row(*row)
    console = Console(soft_wrap=False)
    console.print(table)
    for note in notes:
        console.print(f"note: {note}")
