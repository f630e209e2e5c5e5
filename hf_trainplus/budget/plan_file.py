"""Reads a plan from a YAML or JSON file or from a mapping; all that is wrong is told at once, with line numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from hf_trainplus.budget.plans.located_yaml import load_located
from hf_trainplus.budget.plans.problems import Problems, unknown_key
from hf_trainplus.budget.plans.stage import Stage
from hf_trainplus.budget.plans.stage_order import check_order
from hf_trainplus.budget.plans.stage_reading import read_stage
from hf_trainplus.budget.stages import StagePlan

_KEYS = ("name", "stages")


def read_plan(given: StagePlan | Mapping[str, Any] | str | FilePath, *, world_size: int | None = None) -> StagePlan:
    """Read a plan.

    Args:
        given: path of a YAML or JSON file, a mapping as such a file holds, or a ``StagePlan``.
        world_size: number of processes, where it is known, to check batch sizes against.

    Returns:
        The plan.

    Raises:
        PlanError: everything that is wrong with it: unknown keys, keys given twice, overlapping or empty stages,
            impossible batch sizes, units that do not parse; with line numbers for a file.
        FileNotFoundError: the file does not exist.

    Example:
        >>> plan = read_plan({"stages": [{"name": "all", "budget": {"wall_clock": "2h"}, "learning_rate": 1e-4}]})
        >>> plan.stages[0].budget.wall_clock
        7200.0
        >>> read_plan({"stages": []})
        Traceback (most recent call last):
        hf_trainplus.budget.plans.problems.PlanError: stages: is missing or empty; give a list of at least one stage.
    """
    if isinstance(given, StagePlan):
        return given
    problems = Problems()
    if isinstance(given, Mapping):
        return _build(given, problems, None, world_size)
    path = FilePath(given)
    if not path.is_file():
        raise FileNotFoundError(
            f"plan {str(path)!r} is no file; give the path of a YAML or JSON file: plan='plan.yaml'."
        )
    loaded = load_located(_text(path, problems), problems)
    return _build(loaded, problems, str(path), world_size)


def _text(path: FilePath, problems: Problems) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        problems.add((), f"is no text in UTF-8 (byte {error.start}). Save it as UTF-8.")
        return ""


def _build(given: Any, problems: Problems, source: str | None, world_size: int | None) -> StagePlan:
    if not isinstance(given, Mapping):
        if not problems.found:
            found = "is empty" if given is None else f"is a {type(given).__name__}"
            problems.add((), f"{found}; allowed is a mapping with the key stages: a list of at least one stage.")
        problems.check(source)
    for key in given:
        if key not in _KEYS:
            problems.add((str(key),), unknown_key(key, "a plan", _KEYS))
    name, stages = given.get("name"), given.get("stages")
    if name is not None and not isinstance(name, str):
        problems.add(("name",), f"is {name!r}; allowed is text.")
    if not isinstance(stages, list) or not stages:
        problems.add(("stages",), "is missing or empty; give a list of at least one stage.")
        stages = []
    read = [read_stage(stage, ("stages", place), problems, world_size) for place, stage in enumerate(stages)]
    as_given = [stage if isinstance(stage, Mapping) else {} for stage in stages]
    known = [values if values is not None else raw for values, raw in zip(read, as_given, strict=True)]
    check_order(known, ("stages",), problems)
    problems.check(source)
    return StagePlan(tuple(Stage(**values) for values in read if values is not None), name)
