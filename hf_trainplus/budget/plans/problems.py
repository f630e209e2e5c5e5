"""Everything that is wrong with a plan, found in one read and told at once, with line numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

Path = tuple[str | int, ...]


def path_text(path: Path) -> str:
    """Write where something stands in a plan.

    Example:
        >>> path_text(("stages", 0, "budget", "gpu_hours"))
        'stages[0].budget.gpu_hours'
    """
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "plan"


def unknown_key(key: object, where: str, allowed: Iterable[str]) -> str:
    """Write that a key is unknown, with the one that was likely meant first.

    Example:
        >>> unknown_key("learnin_rate", "a stage", ["name", "learning_rate"])
        "'learnin_rate' is unknown in a stage; did you mean 'learning_rate'? Allowed: name, learning_rate."
    """
    names = list(allowed)
    near = get_close_matches(str(key), names, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    return f"{key!r} is unknown in {where}{meant} Allowed: {', '.join(names)}."


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Args:
        path: where it stands.
        message: what was given, what is allowed, how to fix it.
        line: line of the file, counted from 1; None for a plan that is no file.
    """

    path: Path
    message: str
    line: int | None = None

    def text(self, source: str | None = None) -> str:
        """Write the problem on one line, after its place."""
        place = f"{source}:{self.line}: " if source and self.line else f"{source}: " if source else ""
        return f"{place}{path_text(self.path)}: {self.message}"


class PlanError(ValueError):
    """A plan that cannot be used; ``problems`` has all that is wrong with it, in the order of the file.

    Args:
        problems: at least one.
        source: name of the file, None for a plan that is no file.

    Example:
        >>> print(PlanError([Problem(("stages",), "is empty", 3)], "plan.yaml"))
        plan.yaml:3: stages: is empty
    """

    def __init__(self, problems: list[Problem], source: str | None = None) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        self.source = source
        super().__init__("\n".join(problem.text(source) for problem in self.problems))


@dataclass
class Problems:
    """Collects problems while a plan is read.

    Args:
        lines: line of each place in the file.

    Example:
        >>> problems = Problems({("stages",): 1, ("stages", 0, "name"): 2})
        >>> problems.add(("stages", 0, "name"), "is missing")
        >>> problems.add(("stages", 0, "budget", "usd"), "is negative")
        >>> [problem.line for problem in problems.found]
        [2, 1]
    """

    lines: Mapping[Path, int] = field(default_factory=dict)
    found: list[Problem] = field(default_factory=list)

    def add(self, path: Path, message: str) -> None:
        """Note a problem; without a line of its own it gets that of what it is inside of."""
        place = path
        while place and place not in self.lines:
            place = place[:-1]
        self.found.append(Problem(path, message, self.lines.get(place)))

    def check(self, source: str | None = None) -> None:
        """Raise when anything was found.

        Raises:
            PlanError: with all problems.
        """
        if self.found:
            raise PlanError(self.found, source)
