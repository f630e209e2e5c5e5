"""`trainplus replay`: what a policy of evaluation would have cost and chosen on a recorded run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated
from zipfile import BadZipFile

import typer
from rich.console import Console
from rich.table import Table

from hf_trainplus.decisions.replay import ReplayOptions, ReplayResult, ReplayTrace, replay

_HELP = """Replay a policy of evaluation over TRACE, an .npz with arrays loss (T, N) and step (T,), and correct (T, N)
for --metric error.

Shown: the checkpoint chosen, the last evaluation before the stop, the rows evaluated as a share of stock's (the
winner's full evaluation included), and the regret in standard errors of stock's best.

Example: trainplus replay run.npz --policy race --metric loss --patience 5 --json
"""

_KEYS = (
    "policy",
    "metric",
    "best_index",
    "best_step",
    "stock_best_index",
    "stop_index",
    "cost",
    "regret_se",
    "false_new_best",
    "seconds",
)


def register(app: typer.Typer) -> None:
    """Add the command to the main one."""
    app.command(name="replay", help=_HELP)(replay_command)


def replay_command(
    trace: Annotated[Path, typer.Argument(help="Recorded run, .npz.", show_default=False)],
    policy: Annotated[str, typer.Option(help="race, full, subset or adaptive.")] = "race",
    metric: Annotated[str, typer.Option(help="loss or error.")] = "loss",
    patience: Annotated[int | None, typer.Option(help="Evaluations without improvement before the stop.")] = None,
    tolerance: Annotated[float, typer.Option(help="Regret allowed to a race, in standard errors.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the race's order and of the subset.")] = 0,
    fraction: Annotated[float, typer.Option(help="Share of rows in the subset.")] = 0.1,
    strict: Annotated[bool, typer.Option("--strict", help="Race at 4.0 standard errors in place of 3.5.")] = False,
    live_only: Annotated[bool, typer.Option("--live-only", help="Race without loading weights again.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Replay one policy; exit code 2 for wrong use."""
    try:
        options = ReplayOptions(patience, tolerance, seed, fraction, strict, not live_only)
        result = replay(ReplayTrace.load(trace), policy, metric=metric, options=options)
    except (ValueError, OSError, BadZipFile) as error:
        raise typer.BadParameter(str(error)) from error
    if as_json:
        print(json.dumps({key: _plain(getattr(result, key)) for key in _KEYS}))
    else:
        Console().print(replay_table(result, title=trace.name))


def _plain(value: str | float) -> str | float | None:
    """Return a value as strict JSON has it: a regret without bound is none that a number tells."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def replay_table(result: ReplayResult, title: str) -> Table:
    """Return a result as a table of two columns."""
    table = Table(title=title, show_header=False)
    rows = {
        "policy, metric": f"{result.policy}, {result.metric}",
        "best checkpoint": f"evaluation {result.best_index} (step {result.best_step})",
        "stock's best": f"evaluation {result.stock_best_index}",
        "last evaluation": f"{result.stop_index} (stock: {result.stock_stop_index})",
        "cost": f"{100 * result.cost:.1f} % of stock's rows",
        "regret": f"{result.regret_se:.3f} standard errors",
        "false new bests": str(result.false_new_best),
        "weights loaded again": f"{result.reloads} times",
        "replayed in": f"{result.seconds:.2f} s",
    }
    for what, value in rows.items():
        table.add_row(what, value)
    return table
