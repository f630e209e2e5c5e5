"""`trainplus estimate`: what a run will cost before it runs, and what a running one has still to go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hf_trainplus.budget.cost import estimate_cost
from hf_trainplus.budget.from_run import read_run
from hf_trainplus.budget.units import parse_count
from hf_trainplus.cli._cost_tables import cost_json, cost_rows, print_rows, run_json, run_rows

_HELP = """Estimate operations, hours, memory, energy and money of training and evaluation, before anything runs.

MODEL is a name on the Hub or a folder, of which only the configuration is read; or give --parameters alone. With
--from-run FOLDER the figures come from what a run measured: time left with evaluation and saving included.

Example: trainplus estimate --parameters 175e9 --tokens 300e9 --eval-tokens 1e6 --peak-tflops 312 --utilisation 0.4
"""


def register(app: typer.Typer) -> None:
    """Add the command to the main one."""
    app.command(name="estimate", help=_HELP)(estimate)


def estimate(
    ctx: typer.Context,
    model: Annotated[str | None, typer.Argument(help="Name on the Hub or folder.")] = None,
    parameters: Annotated[str | None, typer.Option(help="Number of parameters instead of a model: 7e9, 7B.")] = None,
    tokens: Annotated[str | None, typer.Option(help="Tokens trained on, epochs included: 300e9, 300B.")] = None,
    sequence_length: Annotated[int | None, typer.Option(help="Tokens a row; needed with a model.")] = None,
    eval_tokens: Annotated[str | None, typer.Option(help="Tokens of one evaluation.")] = None,
    evaluations: Annotated[int, typer.Option(help="Number of evaluations.")] = 1,
    device: Annotated[str | None, typer.Option(help="Device of the table, e.g. h100-sxm.")] = None,
    peak_tflops: Annotated[float | None, typer.Option(help="Dense peak of a device that is not in the table.")] = None,
    precision: Annotated[str, typer.Option(help="bf16, fp16 or fp32.")] = "bf16",
    devices: Annotated[int, typer.Option(help="Number of devices.")] = 1,
    utilisation: Annotated[float, typer.Option(help="Share of the peak that is reached.")] = 0.4,
    scaling_efficiency: Annotated[float, typer.Option(help="Throughput of n devices over n times one.")] = 1.0,
    usd_per_device_hour: Annotated[float | None, typer.Option(help="Price of one device for an hour.")] = None,
    watts: Annotated[float | None, typer.Option(help="Power of one device; the board's largest by default.")] = None,
    batch_size: Annotated[int, typer.Option(help="Rows a device and forward pass.")] = 1,
    gradient_checkpointing: Annotated[bool, typer.Option(help="Blocks are computed twice, not kept.")] = False,
    skipping_attention: Annotated[bool, typer.Option(help="The kernel skips what a causal mask hides.")] = False,
    optimizer: Annotated[str, typer.Option(help="adamw, adamw_8bit, adafactor, lion, sgd_momentum, sgd.")] = "adamw",
    sharding: Annotated[str, typer.Option(help="none, zero1, zero2, zero3, fsdp_grad_op, fsdp_full.")] = "none",
    weight_bytes: Annotated[
        int | None, typer.Option(help="Bytes of a stored weight: 4, or 2; 2 by default under zero1 to zero3.")
    ] = None,
    master_weights: Annotated[
        bool | None, typer.Option(help="A float32 copy beside 16-bit weights; by default under zero1 to zero3.")
    ] = None,
    from_run: Annotated[Path | None, typer.Option(help="Output folder or checkpoint of a run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Print an estimate; exit code 2 for wrong use."""
    given: dict[str, Any] = {
        "sequence_length": sequence_length,
        "evaluations": evaluations,
        "device": device,
        "peak_tflops": peak_tflops,
        "precision": precision,
        "devices": devices,
        "utilisation": utilisation,
        "scaling_efficiency": scaling_efficiency,
        "usd_per_device_hour": usd_per_device_hour,
        "watts_per_device": watts,
        "batch_size": batch_size,
        "gradient_checkpointing": gradient_checkpointing,
        "attention_kernel": "skipping" if skipping_attention else "dense",
        "optimizer": optimizer,
        "sharding": sharding,
        "weight_bytes": weight_bytes,
        "master_weights": master_weights,
    }
    try:
        if from_run is not None:
            _refuse_more(ctx)
            _print_run(from_run, as_json)
        else:
            _print_cost(model, parameters, tokens, eval_tokens, given, as_json)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _refuse_more(ctx: typer.Context) -> None:
    """A run knows its own figures; what is given beside it would be ignored."""
    names = {name: "MODEL" if name == "model" else f"--{name.replace('_', '-')}" for name in ctx.params}
    more = [
        names[name]
        for name in ctx.params
        if name not in ("from_run", "as_json")
        and (source := ctx.get_parameter_source(name)) is not None
        and source.name == "COMMANDLINE"
    ]
    if more:
        raise ValueError(f"--from-run reads all figures from the run; leave out {', '.join(more)}.")


def _print_run(folder: Path, as_json: bool) -> None:
    run = read_run(_resumed_from(folder))
    if as_json:
        typer.echo(json.dumps(run_json(run)))
    else:
        print_rows(run_rows(run))


def _resumed_from(folder: Path) -> Path:
    """Return the checkpoint that the run would go on from; the folder itself where only states were copied."""
    from hf_trainplus.training.checkpoints.search import newest_whole

    whole = newest_whole(str(folder)).folder
    return folder if whole is None else Path(whole)


def _print_cost(
    model: str | None,
    parameters: str | None,
    tokens: str | None,
    eval_tokens: str | None,
    given: dict[str, Any],
    as_json: bool,
) -> None:
    if (model is None) == (parameters is None):
        raise ValueError(
            f"MODEL is {model!r} and --parameters {parameters!r}; give exactly one of them, e.g. trainplus estimate "
            "gpt2 --tokens 1e9 --sequence-length 1024 --device a100-sxm-80gb."
        )
    if tokens is None:
        raise ValueError("--tokens is missing; give the tokens trained on, e.g. --tokens 1e9.")
    cost = estimate_cost(
        model if model is not None else parse_count(parameters, "--parameters"),
        tokens=parse_count(tokens, "--tokens"),
        evaluation_tokens=None if eval_tokens is None else parse_count(eval_tokens, "--eval-tokens"),
        **given,
    )
    if as_json:
        typer.echo(json.dumps(cost_json(cost)))
    else:
        print_rows(cost_rows(cost), cost.notes)
