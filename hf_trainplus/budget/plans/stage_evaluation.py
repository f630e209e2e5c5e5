"""How a stage evaluates: mode, subset, rhythm, further test sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from hf_trainplus.budget.plans.problems import Path, Problems, unknown_key
from hf_trainplus.budget.plans.rule_reading import read_integer, read_number

MODES = ("full", "subset", "race")
SUBSETS = ("stratified", "random", "diversity", "difficulty")
SCHEDULES = ("fixed", "adaptive")
STRATEGIES = ("no", "steps", "epoch")

# Stands for every evaluation set that the trainer was given.
ALL_SETS = "*"


@dataclass(frozen=True)
class StageEvaluation:
    """Evaluation inside one stage; None leaves the run's own setting.

    Args:
        mode: ``full``, ``subset`` or ``race``.
        subset_size: rows (a whole number), or a share below 1.
        subset_strategy: how the subset is drawn.
        schedule: ``fixed``, or ``adaptive`` intervals.
        strategy: ``epoch``, ``steps`` or ``no``.
        every: number of epochs or steps between evaluations, >= 1.
        tolerance: regret allowed, in standard errors, >= 0.
        time_share: evaluation's largest share of wall-clock time, 0 to 1.
        extra_datasets: further evaluation sets by name; ``"*"`` for all that there are.
    """

    mode: str | None = None
    subset_size: float | None = None
    subset_strategy: str | None = None
    schedule: str | None = None
    strategy: str | None = None
    every: int | None = None
    tolerance: float | None = None
    time_share: float | None = None
    extra_datasets: tuple[str, ...] = ()

    def settings(self) -> dict[str, Any]:
        """Return the settings that are set."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) not in (None, ())}


def read_evaluation(given: Any, path: Path, problems: Problems) -> StageEvaluation | None:
    """Read the evaluation of a stage; what is wrong is noted in ``problems``.

    Example:
        >>> read_evaluation({"mode": "subset", "subset_size": 512}, (), Problems()).settings()
        {'mode': 'subset', 'subset_size': 512}
    """
    if isinstance(given, StageEvaluation):
        return given
    names = tuple(one.name for one in fields(StageEvaluation))
    if not isinstance(given, Mapping):
        problems.add(path, f"is {given!r}; allowed is a mapping with {', '.join(names)}.")
        return None
    before = len(problems.found)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in names:
            problems.add((*path, str(name)), unknown_key(name, "the evaluation of a stage", names))
        else:
            values[name] = _read(name, value, (*path, name), problems)
    if values.get("mode") == "subset" and values.get("subset_size") is None:
        problems.add((*path, "mode"), "is subset without subset_size; add e.g. subset_size: 512.")
    return StageEvaluation(**values) if len(problems.found) == before else None


def _read(name: str, value: Any, path: Path, problems: Problems) -> Any:
    choices = {"mode": MODES, "subset_strategy": SUBSETS, "schedule": SCHEDULES, "strategy": STRATEGIES}
    if name in choices:
        # YAML reads a bare `no` as false
        value = "no" if name == "strategy" and value is False else value
        if value not in choices[name]:
            problems.add(path, f"is {value!r}; allowed: {', '.join(choices[name])}.")
        return value
    if name == "extra_datasets":
        sets = [value] if isinstance(value, str) else value
        if not isinstance(sets, (list, tuple)) or not all(isinstance(one, str) and one for one in sets):
            problems.add(path, f"is {value!r}; allowed is a list of names, or '*' for all.")
            return ()
        return tuple(sets)
    if name == "every":
        return read_integer(value, path, problems)
    if name == "subset_size":
        return _subset_size(value, path, problems)
    return read_number(value, path, problems, least=0.0, most=1.0 if name == "time_share" else None)


def _subset_size(value: Any, path: Path, problems: Problems) -> float | None:
    size = read_number(value, path, problems)
    if size is None or 0 < size < 1:
        return size
    if size < 1 or not size.is_integer():
        problems.add(path, f"is {value!r}; allowed is a number of rows, or a share between 0 and 1.")
        return None
    return int(size)
