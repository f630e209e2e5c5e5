"""One stage's settings, read and checked together; what is wrong is collected."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from hf_trainplus.budget.budget import Budget, read_limits
from hf_trainplus.budget.plans.problems import Path, Problems, unknown_key
from hf_trainplus.budget.plans.rule_reading import read_integer, read_number, read_rule
from hf_trainplus.budget.plans.stage_evaluation import read_evaluation
from hf_trainplus.budget.presets import PRESETS, with_preset

# As transformers.SchedulerType; a test holds them together.
SCHEDULERS = (
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "reduce_lr_on_plateau",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "warmup_stable_decay",
    "greedy",
)

ON_BUDGET_SPENT = ("advance", "stop")

Reader = Callable[[Any, Path, Problems], Any]


def _integer(given: Any, path: Path, problems: Problems) -> int | None:
    return read_integer(given, path, problems)


def _positive(given: Any, path: Path, problems: Problems) -> float | None:
    number = read_number(given, path, problems, least=0.0)
    if number == 0:
        problems.add(path, f"is {given!r}; allowed is a number above 0.")
        return None
    return number


def _not_negative(given: Any, path: Path, problems: Problems) -> float | None:
    return read_number(given, path, problems, least=0.0)


def _fraction(given: Any, path: Path, problems: Problems) -> float | None:
    number = _positive(given, path, problems)
    if number is not None and number > 1:
        problems.add(path, f"is {given!r}; allowed is a share above 0 and at most 1, e.g. 0.1.")
        return None
    return number


def _boolean(given: Any, path: Path, problems: Problems) -> bool | None:
    if isinstance(given, bool):
        return given
    problems.add(path, f"is {given!r}; allowed: true, false.")
    return None


def _name(given: Any, path: Path, problems: Problems) -> str | None:
    if isinstance(given, str) and re.fullmatch(r"[A-Za-z0-9_.-]+", given):
        return given
    taken = {bool: "a truth value", int: "a number", float: "a number"}.get(type(given))
    quotes = f" Put it in quotes: YAML takes it for {taken}." if taken else ""
    problems.add(path, f"is {given!r}; allowed are letters, digits and _ . - (it becomes part of file names).{quotes}")
    return None


def _text(given: Any, path: Path, problems: Problems) -> str | None:
    if isinstance(given, str) and given:
        return given
    problems.add(path, f"is {given!r}; allowed is a name.")
    return None


def _one_of(*allowed: str) -> Reader:
    def read(given: Any, path: Path, problems: Problems) -> str | None:
        if given in allowed:
            return str(given)
        problems.add(path, f"is {given!r}; allowed: {', '.join(allowed)}.")
        return None

    return read


def _mapping(given: Any, path: Path, problems: Problems) -> dict[str, Any] | None:
    if isinstance(given, Mapping):
        return dict(given)
    problems.add(path, f"is {given!r}; allowed is a mapping.")
    return None


def _names(given: Any, path: Path, problems: Problems) -> tuple[str, ...] | None:
    names = [given] if isinstance(given, str) else given
    if isinstance(names, (list, tuple)) and names and all(isinstance(one, str) and one for one in names):
        return tuple(names)
    problems.add(path, f"is {given!r}; allowed is a list of parameter names or patterns, e.g. ['*.embeddings.*'].")
    return None


def _budget(given: Any, path: Path, problems: Problems) -> Budget | None:
    if isinstance(given, Budget):
        return given
    if isinstance(given, str):
        try:
            return Budget.parse(given)
        except ValueError as error:
            for line in str(error).splitlines():
                problems.add(path, line)
            return None
    if not isinstance(given, Mapping) or not given:
        problems.add(path, f"is {given!r}; allowed is a mapping with at least one limit, e.g. {{gpu_hours: 8}}.")
        return None
    numbers, wrong = read_limits(given)
    for name, message in wrong.items():
        problems.add((*path, name), message)
    return None if wrong else Budget(**numbers)


def _steps(given: Any, path: Path, problems: Problems) -> tuple[int, int] | None:
    if isinstance(given, (list, tuple)) and len(given) == 2:
        before = len(problems.found)
        first, last = (read_integer(one, (*path, place), problems, least=0) for place, one in enumerate(given))
        if len(problems.found) > before or first is None or last is None:
            return None
        if first < last:
            return first, last
        problems.add(path, f"is {list(given)}, which holds no step; allowed: [first, end] with end above first.")
        return None
    problems.add(path, f"is {given!r}; allowed: [first, end], two step numbers.")
    return None


READERS: dict[str, Reader] = {
    "name": _name,
    "preset": _one_of(*PRESETS),
    "train": _boolean,
    "budget": _budget,
    "steps": _steps,
    "on_budget_spent": _one_of(*ON_BUDGET_SPENT),
    "per_device_train_batch_size": _integer,
    "global_batch_size": _integer,
    "gradient_accumulation_steps": _integer,
    "learning_rate": _positive,
    "lr_scheduler_type": _one_of(*SCHEDULERS),
    "lr_scheduler_kwargs": _mapping,
    "warmup_steps": _not_negative,
    "weight_decay": _not_negative,
    "max_grad_norm": _not_negative,
    "data_fraction": _fraction,
    "train_dataset": _text,
    "freeze": _names,
    "eval": read_evaluation,
    "advance_when": read_rule,
    "stop_when": read_rule,
    "fall_back_when": read_rule,
    "fall_back_to": _name,
    "fall_back_at_most": _integer,
    "num_processes": _integer,
}

TRAINING_ONLY = (
    "budget",
    "steps",
    "per_device_train_batch_size",
    "global_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "lr_scheduler_type",
    "lr_scheduler_kwargs",
    "warmup_steps",
    "weight_decay",
    "max_grad_norm",
    "data_fraction",
    "train_dataset",
    "freeze",
)


def read_stage(given: Any, path: Path, problems: Problems, world_size: int | None = None) -> dict[str, Any] | None:
    """Read the settings of one stage.

    Args:
        given: what stands in the plan.
        path: where.
        problems: what is wrong is noted here, all of it.
        world_size: number of processes, where it is known; ``num_processes`` of the stage wins.

    Returns:
        Settings by name, None when anything is wrong.
    """
    if not isinstance(given, Mapping) or not given:
        problems.add(path, f"is {given!r}; a stage is a mapping with at least a name and a budget.")
        return None
    before = len(problems.found)
    for key in given:
        if key not in READERS:
            problems.add((*path, str(key)), unknown_key(key, "a stage", READERS))
    settings = with_preset(given)
    values = {
        name: READERS[name](value, (*path, name), problems)
        for name, value in settings.items()
        if name in READERS and value is not None
    }
    _check_together(settings, path, problems)
    _check_batch(values, path, problems, values.get("num_processes") or world_size)
    return values if len(problems.found) == before else None


def _check_together(settings: Mapping[str, Any], path: Path, problems: Problems) -> None:
    if not settings.get("name"):
        problems.add((*path, "name"), "is missing; every stage has a name of its own.")
    if settings.get("train") is False:
        for name in (name for name in TRAINING_ONLY if settings.get(name) is not None):
            problems.add((*path, name), f"stands in a stage with train: false, which takes no step; leave {name} out.")
    elif all(settings.get(name) is None for name in ("budget", "steps", "advance_when")):
        problems.add(path, "is empty: nothing says when it ends. Add a budget, steps or advance_when.")
    if (settings.get("fall_back_when") is None) != (settings.get("fall_back_to") is None):
        problems.add(path, "has one of fall_back_when and fall_back_to; give both: when, and to which earlier stage.")
    if settings.get("fall_back_at_most") is not None and settings.get("fall_back_when") is None:
        problems.add((*path, "fall_back_at_most"), "stands without fall_back_when; leave it out or say when.")


def _check_batch(values: Mapping[str, Any], path: Path, problems: Problems, world_size: int | None) -> None:
    whole, per_device = values.get("global_batch_size"), values.get("per_device_train_batch_size")
    accumulation = values.get("gradient_accumulation_steps")
    if whole is None:
        return
    if per_device is not None and accumulation is not None:
        problems.add((*path, "gradient_accumulation_steps"), "follows from the other two batch sizes; leave it out.")
        return
    unit = (per_device or accumulation or 1) * (world_size or 1)
    if whole % unit:
        near = max(unit, round(whole / unit) * unit)
        what = f"{per_device} rows a device" if per_device else f"{accumulation or 1} accumulation steps"
        ranks = f" on {world_size} devices" if world_size else ""
        problems.add(
            (*path, "global_batch_size"),
            f"is {whole}, which {what}{ranks} cannot make up: it is no multiple of {unit}. Write {near}.",
        )
