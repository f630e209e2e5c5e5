"""Read the text values of the Plus arguments, and refuse what cannot be meant.

These functions change only the fields of the arguments object that they are given.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from hf_trainplus.budget.stops import parse_deadline
from hf_trainplus.training.field_ranges import read_columns, read_number, read_ranges

if TYPE_CHECKING:
    from hf_trainplus.training_args import PlusTrainingArguments

_PACKAGE = "hf_trainplus"


def read_plus_fields(args: PlusTrainingArguments) -> None:
    """Normalise and check every Plus field of ``args`` in place.

    Raises:
        ValueError: a value is not one of the allowed ones.
    """
    for name, number in read_ranges(vars(args)).items():
        setattr(args, name, number)
    one_of(args, "eval_predictions", ("argmax", "logits"), optional=True)
    one_of(args, "eval_mode", ("full", "subset", "race"))
    one_of(args, "eval_subset_strategy", ("stratified", "random", "diversity", "difficulty"))
    one_of(args, "eval_precision", ("bf16", "fp16", "fp32"), optional=True)
    one_of(args, "eval_schedule", ("fixed", "adaptive"))
    if args.eval_time_share is not None and args.eval_schedule != "adaptive":
        raise ValueError(
            f"eval_time_share={args.eval_time_share!r} with eval_schedule={args.eval_schedule!r}; only the adaptive "
            "schedule moves evaluations: set eval_schedule='adaptive'."
        )
    if args.eval_schedule == "adaptive" and args.eval_min_steps > args.eval_max_steps:
        raise ValueError(
            f"eval_min_steps={args.eval_min_steps} with eval_max_steps={args.eval_max_steps}; allowed are intervals "
            f"with eval_min_steps <= eval_max_steps, e.g. eval_min_steps={args.eval_max_steps}."
        )
    args.gpu_monitor = read_interval("gpu_monitor", args.gpu_monitor)
    args.budget = read_budget(args.budget)
    args.stop_signals = read_signals(args.stop_signals)
    args.deadline = read_deadline(args.deadline)
    # upstream's field is text, so that `--resume_from_checkpoint True` of a command line means a folder named True
    if args.resume_from_checkpoint in ("True", "true") and not os.path.isdir(args.resume_from_checkpoint):
        args.resume_from_checkpoint = True  # type: ignore[assignment]
    one_of(args, "on_eval_error", ("raise", "continue"))
    one_of(args, "plan_on_resume", ("keep", "replace"))
    args.plan = read_plan_value(args.plan)
    one_of(args, "ddp_comm_hook", ("fp16", "bf16", "power_sgd"), optional=True)
    args.eval_group_columns = read_columns("eval_group_columns", args.eval_group_columns)  # type: ignore[assignment]
    args.eval_tokens_per_batch = read_tokens_per_batch(args.eval_tokens_per_batch)
    args.eval_cache = read_cache(args.eval_cache)
    args.eval_subset_size = read_size("eval_subset_size", args.eval_subset_size)
    args.generation_eval_size = read_size("generation_eval_size", args.generation_eval_size)
    if args.eval_mode == "subset" and args.eval_subset_size is None:
        raise ValueError(
            "eval_mode='subset' needs a size and eval_subset_size=None was given; allowed are a number of rows or a "
            "fraction, e.g. eval_subset_size=512."
        )


def one_of(args: object, name: str, allowed: Sequence[str], *, optional: bool = False) -> None:
    """Check that the field ``name`` is one of ``allowed``; the text ``none`` stands for None where that is allowed."""
    value = getattr(args, name)
    if optional and (value is None or str(value).lower() == "none"):
        setattr(args, name, None)
        return
    if value not in allowed:
        choices = ", ".join(repr(choice) for choice in (*allowed, *((None,) if optional else ())))
        raise ValueError(f"{name}={value!r}; allowed are {choices}, e.g. {name}={allowed[0]!r}.")


def read_tokens_per_batch(value: Any) -> Any:
    """Return ``"auto"``, a positive int, or None.

    Example:
        >>> read_tokens_per_batch("4096"), read_tokens_per_batch("none"), read_tokens_per_batch("auto")
        (4096, None, 'auto')
    """
    if value is None or str(value).lower() == "none":
        return None
    if value == "auto":
        return value
    tokens = read_number(value)
    if tokens is None or tokens < 1 or tokens != int(tokens):
        raise ValueError(
            f"eval_tokens_per_batch={value!r}; allowed are 'auto', a whole number of padded tokens >= 1, or None, "
            "e.g. eval_tokens_per_batch=16384."
        )
    return int(tokens)


def read_cache(value: Any) -> Any:
    """Return a folder's name, True for the folder that follows from the output folder, or None for no cache.

    Example:
        >>> read_cache("true"), read_cache(False), read_cache("none"), read_cache("shared/evaluations")
        (True, None, None, 'shared/evaluations')
    """
    if value is None or isinstance(value, bool):
        return value or None
    if not isinstance(value, (str, os.PathLike)) or not str(value).strip():
        raise ValueError(
            f"eval_cache={value!r}; allowed are True, False, None and a folder's name, e.g. eval_cache='evaluations'."
        )
    words = {"true": True, "false": None, "none": None}
    return words.get(str(value).lower(), str(value))


def read_plan_value(value: Any) -> Any:
    """Return a plan as a mapping or a file's name; JSON text becomes a mapping, ``none`` becomes None.

    Example:
        >>> read_plan_value('{"stages": []}'), read_plan_value("plan.yaml"), read_plan_value("none")
        ({'stages': []}, 'plan.yaml', None)
    """
    if value is None or str(value).lower() == "none":
        return None
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return dict(json.loads(value))
        except ValueError as error:
            raise ValueError(f"plan={value!r} is no JSON ({error}); give a file, e.g. plan='plan.yaml'.") from None
    if isinstance(value, (str, os.PathLike)):
        return str(value)
    raise ValueError(
        f"plan={value!r}; allowed are a YAML or JSON file, a mapping and None, e.g. plan='plan.yaml'. A StagePlan is "
        "an argument of the trainer: PlusTrainer(plan=...)."
    )


def read_size(name: str, value: Any) -> int | float | None:
    """Return a number of rows (int) or a fraction (float), or None; 1.0 is all rows, as a fraction is.

    Example:
        >>> [read_size("eval_subset_size", size) for size in (512.0, 0.1, 1.0, 1)]
        [512, 0.1, 1.0, 1]
    """
    if value is None or str(value).lower() == "none":
        return None
    number = read_number(value)
    if number is not None and (0 < number < 1 or (number == 1 and isinstance(value, float))):
        return number
    if number is not None and number >= 1 and number == int(number):
        return int(number)
    raise ValueError(
        f"{name}={value!r}; allowed are a whole number of rows >= 1 or a fraction between 0 and 1, e.g. {name}=512."
    )


def read_interval(name: str, value: Any) -> Any:
    """Return False, True, or seconds above 0.

    Example:
        >>> [read_interval("gpu_monitor", value) for value in ("true", "0.5", None)]
        [True, 0.5, False]
    """
    if value is None or isinstance(value, bool) or str(value).lower() in ("true", "false", "none"):
        return value is True or str(value).lower() == "true"
    seconds = read_number(value)
    if seconds is None or seconds <= 0:
        raise ValueError(f"{name}={value!r}; allowed are true, false or seconds above 0, e.g. {name}=1.0.")
    return seconds


def read_deadline(value: Any) -> str | None:
    """Return a deadline as text, as it was given; a YAML file gives times and numbers too.

    Example:
        >>> read_deadline("2026-05-01T18:00"), read_deadline(1777651200), read_deadline("none")
        ('2026-05-01T18:00', '1777651200', None)
    """
    if value is None or str(value).lower() == "none":
        return None
    if not isinstance(value, bool):
        value = value.isoformat() if isinstance(value, date) else str(value)
    parse_deadline(value)
    return str(value)


def read_budget(value: Any) -> Any:
    """Return a budget as it was given, once it is known to parse; ``none`` becomes None.

    Example:
        >>> read_budget("gpu_hours=8"), read_budget("none")
        ('gpu_hours=8', None)
    """
    if value is None or str(value).lower() == "none":
        return None
    from hf_trainplus.budget.budget import Budget

    if not Budget.parse(value):
        raise ValueError(
            f"budget={value!r} sets no limit; allowed are limits as text or as a mapping, and None, e.g. "
            "budget='gpu_hours=8,wall_clock=2h'."
        )
    return value


def read_signals(value: Any) -> Any:
    """Return names of signals as they were given, once they are known to be signals; ``none`` becomes None.

    Example:
        >>> read_signals("SIGTERM,SIGUSR1"), read_signals("none")
        ('SIGTERM,SIGUSR1', None)
    """
    if value is None or str(value).lower() == "none":
        return None
    from hf_trainplus.budget.signals import parse_signals

    if not isinstance(value, (str, list, tuple)) or not parse_signals(value):
        raise ValueError(
            f"stop_signals={value!r} names no signal; allowed are names with commas and None, e.g. "
            "stop_signals='SIGTERM,SIGUSR1'."
        )
    return value


def refuse_wrong_base_order(cls: type, plus: type, stock: type) -> None:
    """Refuse a class in which another trainer or arguments class comes after ``plus`` in the resolution order.

    Raises:
        TypeError: ``plus`` is not the last of the bases; the message holds the right line.
    """
    after = cls.__mro__[cls.__mro__.index(plus) + 1 :]
    foreign = [base for base in after if issubclass(base, stock) and base is not stock and not _is_ours(base)]
    if not foreign:
        return
    bases = [base for base in cls.__bases__ if base is not plus] or foreign[:1]
    names = ", ".join([base.__name__ for base in bases] + [plus.__name__])
    raise TypeError(
        f"class {cls.__name__}: {plus.__name__} stands before {foreign[0].__name__}, so what {foreign[0].__name__} "
        f"overrides would be skipped. {plus.__name__} is the last base: class {cls.__name__}({names}): ..."
    )


def _is_ours(cls: type) -> bool:
    """Say whether the class is defined in this package, or is upstream's own base of one of ours."""
    return cls.__module__.split(".")[0] == _PACKAGE or cls.__module__ == "transformers.training_args_seq2seq"
