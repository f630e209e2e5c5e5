"""`trainplus run`: the stages of a plan one after another, each with its own number of processes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hf_trainplus.budget.plan_file import read_plan
from hf_trainplus.launch.child import Child
from hf_trainplus.launch.command import output_dir_of
from hf_trainplus.launch.staged import Outcome, run_stages

_HELP = """Run a plan: start the command once a stage, with the stage's num_processes, from the last boundary on.

The command is a script that makes a PlusTrainer with PlusTrainingArguments: under accelerate launch or torchrun, or
alone. It is told its plan and its stage in TRAINPLUS_PLAN and TRAINPLUS_STAGE, and resumes from the newest checkpoint
in its output folder by itself. A plan that is over returns at once with code 0; a child that fails ends the chain with
its code. SIGINT, SIGTERM, SIGUSR1, SIGHUP and SIGQUIT are passed on to the processes that train, which save and leave
at SIGTERM and SIGUSR1 (stop_signals). The same command then goes on where it ended.

Example: trainplus run plan.yaml -- accelerate launch recipes/text_classification.py --output_dir runs/staged
"""


def register(app: typer.Typer) -> None:
    """Add the command to the main command."""
    app.command(name="run", help=_HELP, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
        run
    )


def run(
    ctx: typer.Context,
    plan: Annotated[Path, typer.Argument(help="YAML or JSON file.")],
    output_dir: Annotated[
        str | None,
        typer.Option("--output-dir", help="Folder of the run, where the command does not give --output_dir."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object at the end; the children write as ever.")
    ] = False,
) -> None:
    """Run the stages; exit code 0, that of a child that failed, or 2 for a plan or a command that cannot be used."""
    command = ctx.args
    child = Child()
    try:
        if not command:
            raise ValueError(f"no command was given; write: trainplus run {plan} -- accelerate launch train.py ...")
        folder = output_dir or output_dir_of(command)
        if folder is None:
            raise ValueError(
                "where the run's checkpoints are is not known; add --output_dir runs/a to the command, or give "
                "trainplus run --output-dir runs/a when it is the script's own default."
            )
        outcome = run_stages(
            read_plan(plan),
            plan,
            command,
            folder,
            child.run,
            tell=lambda line: typer.echo(line, err=True),
            stop=lambda: child.signal is not None,
        )
    except (ValueError, FileNotFoundError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    typer.echo(json.dumps({**asdict(outcome), "exit_code": outcome.exit_code}) if as_json else _text(outcome, folder))
    raise typer.Exit(outcome.exit_code)


def _text(outcome: Outcome, folder: str) -> str:
    place = outcome.place
    at = "before its first checkpoint" if place.step is None else f"at step {place.step}"
    if outcome.state == "finished":
        return f"the plan is over {at}: {place.reason}."
    last = outcome.launches[-1].stage if outcome.launches else "none"
    if outcome.state == "failed":
        return f"stage {last} failed with exit code {outcome.exit_code}; the same command goes on {at}."
    if place.step is None:
        return (
            f"stage {last} ended and left no checkpoint in {folder}; where the command writes to another folder, give "
            "that one as --output-dir."
        )
    return f"stopped in stage {last}; the same command goes on with stage {place.stage} {at}."
