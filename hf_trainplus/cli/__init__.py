"""The trainplus command, one file a command group; a command's module is imported when it is called."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

_FOLDER = Path(__file__).parent


def command_names() -> list[str]:
    """Return the commands that this installation has: one for each module here that has no leading underscore.

    Example:
        >>> "replay" in command_names()
        True
    """
    return sorted(path.stem.replace("_", "-") for path in _FOLDER.glob("*.py") if not path.stem.startswith("_"))


def summary_of(command: str) -> str:
    """Return a command's line in the list: the first line of its module's docstring, read without importing it.

    Example:
        >>> summary_of("replay")
        'What a policy of evaluation would have cost and chosen on a recorded run.'
    """
    source = (_FOLDER / f"{command.replace('-', '_')}.py").read_text(encoding="utf-8")
    line = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    text = line.partition(": ")[2] if line.startswith("`trainplus") else line
    return text[:1].upper() + text[1:]


class LazyCommands(TyperGroup):
    """Lists commands by their files and imports a module when its command is called.

    A module's ``register(app)`` adds its command or group, under the module's name with dashes.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands' names."""
        return command_names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command; None when there is none of that name."""
        if cmd_name not in command_names():
            return None
        single = typer.Typer(add_completion=False)
        single.callback()(lambda: None)  # keeps a group around a single command, so that it is found by its name
        import_module(f"{__name__}.{cmd_name.replace('-', '_')}").register(single)
        group: Any = get_command(single)
        return group.commands[cmd_name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage and the list of commands without importing them."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary_of(name)) for name in command_names()])
        with formatter.section("Options"):
            formatter.write_dl(
                [record for record in (item.get_help_record(ctx) for item in self.get_params(ctx)) if record]
            )


app = typer.Typer(cls=LazyCommands, add_completion=False, no_args_is_help=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        from hf_trainplus import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def trainplus(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Evaluation that is right, fast and cheap, budgets that hold and seconds that are explained.

    Every command has --help with an example and --json for machines; exit code 0 is success, 1 a failed gate, 2 wrong
    use. Example: trainplus replay run.npz --policy race --metric loss --json
    """


def main() -> None:
    """Run the command line."""
    app()
