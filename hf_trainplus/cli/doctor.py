"""`trainplus doctor`: what is wrong with a run, or what stands in the way of one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from hf_trainplus.monitor.diagnosis import Evidence, Verdict, diagnose, gather_evidence, report_section, tell
from hf_trainplus.training.strict_state import from_strict

_HELP = """Diagnose a finished or running RUN (its output folder); without one, check this machine before a launch.

RUN is read only: trainer_state.json of the folder or of its newest checkpoint, and what the monitoring callbacks left
in RUN/trainplus. What the run's own diagnosis at its end could tell, and these files cannot, is told as well. A finding
is no failure: the exit code is 0.

Example: trainplus doctor outputs/my-run --json
"""


def register(app: typer.Typer) -> None:
    """Add the command to the main one."""
    app.command(name="doctor", help=_HELP)(doctor)


def doctor(
    run: Annotated[Path | None, typer.Argument(help="Output folder of a run.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
    all_rules: Annotated[bool, typer.Option("--all", help="Tell what is clear or unknown too.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="A section for a report, with all rules.")] = False,
) -> None:
    """Diagnose a run or the environment; exit code 2 for wrong use."""
    if markdown and (as_json or run is None):
        raise typer.BadParameter(
            "--markdown writes the section of one run, and no JSON; give trainplus doctor RUN --markdown."
        )
    if run is None:
        _environment(as_json)
        return
    verdicts = _completed(diagnose(read_run(run)), run)
    if as_json:
        print(json.dumps({"run": str(run), "verdicts": [one.to_json() for one in verdicts]}, indent=1))
        return
    if markdown:
        print(report_section(verdicts, f"Diagnosis of {run.resolve().name}"), end="")
        return
    print(tell(verdicts) or "nothing found.")
    for outcome in ("clear", "unknown") if all_rules else ():
        for one in verdicts:
            if one.outcome == outcome:
                print(f"{outcome}: {one.rule}: {one.message}")
    print(_counts(verdicts))


def read_run(folder: Path) -> Evidence:
    """Gather what a run left in its output folder; it changes nothing and unpickles nothing.

    Args:
        folder: the run's ``output_dir``.

    Returns:
        The evidence; records that are absent are missing in it.

    Raises:
        typer.BadParameter: the folder holds no record of a run, or one that is no JSON or not what was written.
    """
    state = _newest_state(folder)
    records = {name: _read(folder / "trainplus" / f"{name}.json") for name in ("step_clock", "devices", "memory")}
    if state is None and not any(records.values()):
        raise typer.BadParameter(
            f"{folder} holds no trainer_state.json and no trainplus folder; give a run's output_dir, e.g. "
            "trainplus doctor outputs/my-run."
        )
    # PlusTrainer writes NaN and infinity as texts, since JSON has none
    history = [] if state is None else from_strict(state.get("log_history", []))
    try:
        return gather_evidence(log_history=history, **records)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise typer.BadParameter(
            f"{folder} holds a record that is not as it was written ({type(error).__name__}: {error}); look at "
            f"trainer_state.json and the files in {folder / 'trainplus'}, and remove the one that is not a run's."
        ) from error


def _completed(verdicts: list[Verdict], folder: Path) -> list[Verdict]:
    """Take the verdicts of the run's own end for rules that lack evidence here: a run need not save its history.

    A history that is newer than they are belongs to another run, or has all that they had.
    """
    path = folder / "trainplus" / "diagnosis.json"
    states = [folder / "trainer_state.json", *folder.glob("checkpoint-*/trainer_state.json")]
    if not path.is_file() or any(one.is_file() and one.stat().st_mtime > path.stat().st_mtime for one in states):
        return verdicts
    try:
        recorded = {one.rule: one for one in (Verdict(**entry) for entry in json.loads(path.read_text("utf-8")))}
    except (OSError, TypeError, ValueError) as error:
        typer.echo(f"{path} is not read ({type(error).__name__}: {error}).", err=True)
        return verdicts
    return [recorded.get(one.rule, one) if one.outcome == "unknown" else one for one in verdicts]


def _newest_state(folder: Path) -> dict[str, Any] | None:
    checkpoints = {
        int(match.group(1)): path
        for path in folder.glob("checkpoint-*/trainer_state.json")
        if (match := re.fullmatch(r"checkpoint-(\d+)", path.parent.name))
    }
    paths = [folder / "trainer_state.json", *(checkpoints[step] for step in sorted(checkpoints, reverse=True))]
    states: list[dict[str, Any]] = []
    torn: typer.BadParameter | None = None
    for path in paths:
        try:
            state = _read(path)
        except typer.BadParameter as error:
            torn = torn or error
        else:
            states += [] if state is None else [state]
    if torn is not None and not states:
        raise torn
    newest = max(states, key=_step_of, default=None)
    if torn is not None:
        typer.echo(f"{torn.message} Step {_step_of(newest or {}):g} is read in its place.", err=True)
    return newest


def _step_of(state: dict[str, Any]) -> float:
    step = state.get("global_step", 0)
    return step if isinstance(step, (int, float)) else 0


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read ({error}).") from error
    except ValueError as error:
        raise typer.BadParameter(
            f"{path} is no JSON ({error}); it may be torn by a kill: remove it and try again."
        ) from error
    if not isinstance(found, dict):
        raise typer.BadParameter(f"{path} holds {type(found).__name__} where a run writes an object; remove it.")
    return found


def _counts(verdicts: list[Verdict]) -> str:
    counts = {name: sum(one.outcome == name for one in verdicts) for name in ("found", "clear", "unknown")}
    return f"{counts['found']} found, {counts['clear']} clear, {counts['unknown']} unknown (--all tells them)"


def _environment(as_json: bool) -> None:
    from hf_trainplus.cli._environment_checks import check_environment

    checks = check_environment()
    if as_json:
        print(json.dumps({"checks": [one.to_json() for one in checks]}, indent=1))
        return
    width = max(len(one.name) for one in checks)
    for one in checks:
        step = f"  -> {one.next_step}" if one.next_step else ""
        print(f"{one.status:8} {one.name:{width}}  {one.message}{step}")
