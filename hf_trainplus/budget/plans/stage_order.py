"""Checks on the stages of a plan together: names, ranges of steps, where a stage falls back to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hf_trainplus.budget.plans.problems import Path, Problems


def check_order(stages: Sequence[Mapping[str, Any]], path: Path, problems: Problems) -> None:
    """Note what does not fit together.

    Args:
        stages: settings of each stage; those that could not be read are given as they stand.
        path: where the list stands.
        problems: what is wrong is noted here.

    Example:
        >>> problems = Problems()
        >>> check_order([{"name": "a", "steps": (0, 10)}, {"name": "b", "steps": (5, 20)}], ("stages",), problems)
        >>> problems.found[0].message
        "overlaps stage 'a', which ends at step 10: it begins at step 5. Write [10, 20]."
    """
    seen: dict[Any, int] = {}
    for place, stage in enumerate(stages):
        name = stage.get("name")
        name = name if isinstance(name, str) else None  # what else stands there is told where the stage is read
        if name in seen and name is not None:
            problems.add(
                (*path, place, "name"),
                f"is {name!r}, the name of stage {seen[name] + 1} too: their checkpoints and metrics would overlap. "
                "Give it a name of its own.",
            )
        seen.setdefault(name, place)
        _check_fall_back(stage, place, stages, path, problems)
    _check_ranges(stages, path, problems)


def _check_fall_back(
    stage: Mapping[str, Any], place: int, stages: Sequence[Mapping[str, Any]], path: Path, problems: Problems
) -> None:
    target = stage.get("fall_back_to")
    earlier = [str(one.get("name")) for one in stages[:place]]
    if target is not None and target not in earlier:
        known = f"allowed: {', '.join(earlier)}" if earlier else "the first stage has none before it"
        problems.add((*path, place, "fall_back_to"), f"is {target!r}, which is no earlier stage; {known}.")


def _check_ranges(stages: Sequence[Mapping[str, Any]], path: Path, problems: Problems) -> None:
    trained = [(place, stage) for place, stage in enumerate(stages) if stage.get("train") is not False]
    ranges = [(place, stage) for place, stage in trained if _is_range(stage.get("steps"))]
    without = [place for place, stage in trained if stage and stage.get("steps") is None]
    if ranges:
        for place in without:
            problems.add((*path, place), "has no steps, and other stages have; give all of them ranges or none.")
    end, before = 0, ""
    for place, stage in ranges:
        first, last = stage["steps"]
        here = (*path, place, "steps")
        if first < end:
            problems.add(
                here, f"overlaps {before}, which ends at step {end}: it begins at step {first}. Write [{end}, {last}]."
            )
        elif first > end and not without:
            problems.add(here, f"begins at step {first} and leaves steps {end} to {first} out. Write [{end}, {last}].")
        end, before = max(end, last), f"stage {stage.get('name')!r}"


def _is_range(steps: Any) -> bool:
    is_pair = isinstance(steps, (list, tuple)) and len(steps) == 2
    return is_pair and all(isinstance(one, int) for one in steps) and steps[0] < steps[1]
