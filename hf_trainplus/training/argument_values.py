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

if TYPE_CHECKING:
    from hf_trainplus.training_args import PlusTrainingArguments

_PACKAGE = "hf_trainplus"


def read_plus_fields(args: PlusTrainingArguments) -> None:
    """Normalise and check every Plus field of ``args`` in place.

    Raises:
        ValueError: a value is not one of the allowed ones.
    """
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
    args.gpu_monitor = read_interval("gpu_monitor", args.gpu_monitor)
    args.deadline = read_deadline(args.deadline)
    # upstream's field is text, so that `--resume_from_checkpoint True` of a command line means a folder named True
    if args.resume_from_checkpoint in ("True", "true") and not os.path.isdir(args.resume_from_checkpoint):
        args.resume_from_checkpoint = True  # type: ignore[assignment]
    one_of(args, "on_eval_error", ("raise", "continue"))
    one_of(args, "plan_on_resume", ("keep", "replace"))
    args.plan = read_plan_value(args.plan)
    one_of(args, "ddp_comm_hook", ("fp16", "bf16", "power_sgd"), optional=True)
    if not 0 < args.eval_confidence < 1:
        raise ValueError(
            f"eval_confidence={args.eval_confidence!r}; allowed are numbers between 0 and 1, e.g. eval_confidence=0.95."
        )
    if not args.eval_tolerance >= 0:
        raise ValueError(
            f"eval_tolerance={args.eval_tolerance!r}; allowed are numbers >= 0, in standard errors of the full-set "
            "metric, e.g. eval_tolerance=0.25; 0 keeps the stock decision."
        )
    args.eval_group_columns = read_names(args.eval_group_columns)
    args.eval_tokens_per_batch = read_tokens_per_batch(args.eval_tokens_per_batch)
    args.eval_cache = read_cache(args.eval_cache)
    args.eval_subset_size = read_size("eval_subset_size", args.eval_subset_size)
    args.generation_eval_size = read_size("generation_eval_size", args.generation_eval_size)
    for name in ("generation_eval_steps", "generation_max_new_tokens"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"{name}={value!r}; allowed are whole numbers >= 1 and None, e.g. {name}=100.")
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
    try:
        tokens = int(value)
    except (TypeError, ValueError):
        tokens = 0
    if tokens < 1 or str(tokens) != str(value):
        raise ValueError(
            f"eval_tokens_per_batch={value!r}; allowed are 'auto', a whole number of padded tokens >= 1, or None, "
            "e.g. eval_tokens_per_batch=16384."
        )
    return tokens


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
    """Return a number of rows (int) or a fraction below 1 (float), or None.

    Example:
        >>> read_size("eval_subset_size", 512.0), read_size("eval_subset_size", 0.1)
        (512, 0.1)
    """
    if value is None:
        return None
    number = float(value)
    if 0 < number < 1:
        return number
    if number >= 1 and number == int(number):
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
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
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


def read_names(value: Any) -> Any:
    """Return a list of column names from a list or from text with commas; None stays None.

    Example:
        >>> read_names("topic, source"), read_names(None)
        (['topic', 'source'], None)
    """
    if value is None or isinstance(value, (list, tuple)):
        return None if value is None else list(value)
    return [name.strip() for name in str(value).split(",") if name.strip()]


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
