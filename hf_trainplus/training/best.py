"""A new best always has a checkpoint: which evaluation is the best so far, and whether it must be written."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, SaveStrategy

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments


def metric_key(metric_for_best_model: str) -> str:
    """Return the key of the watched metric among logged metrics.

    Example:
        >>> metric_key("loss"), metric_key("eval_a_loss")
        ('eval_loss', 'eval_a_loss')
    """
    return metric_for_best_model if metric_for_best_model.startswith("eval_") else f"eval_{metric_for_best_model}"


def set_prefix(prefix: str) -> str:
    """Return the prefix of a set's keys: fit for trackers, and with no ``eval_eval``.

    Example:
        >>> set_prefix("eval_eval"), set_prefix("eval_eval_x"), set_prefix("eval_my set")
        ('eval', 'eval_x', 'eval_my_set')
    """
    while prefix == "eval_eval" or prefix.startswith("eval_eval_"):
        prefix = prefix[len("eval_") :]
    return re.sub(r"[^A-Za-z0-9_./-]", "_", prefix)


def watched_set(key: str, names: Iterable[str]) -> str | None:
    """Return which of several evaluation sets a metric's key belongs to; None for none of them.

    Of two names of which one begins with the other, the longer one is meant.

    Example:
        >>> watched_set("eval_test_hard_loss", ["test", "test_hard"]), watched_set("eval_my_set_loss", ["my set"])
        ('test_hard', 'my set')
    """
    fitting = [name for name in names if key.startswith(f"{set_prefix(f'eval_{name}')}_")]
    return max(fitting, key=len, default=None)


def own_name(key: str, sets: Any) -> str:
    """Return a metric's name without what stands for evaluation and set.

    Args:
        key: key among logged metrics.
        sets: the evaluation set, or a mapping of several.

    Example:
        >>> own_name("eval_loss", [1, 2]), own_name("eval_my_set_f1", {"my set": [1], "b": [2]})
        ('loss', 'f1')
    """
    name = watched_set(key, sets) if isinstance(sets, dict) else None
    return key.removeprefix("eval" if name is None else set_prefix(f"eval_{name}")).removeprefix("_")


def require_metric(args: TrainingArguments, metrics: Mapping[str, Any], label_names: Collection[str]) -> None:
    """Check that an evaluation produced the metric that decides.

    Raises:
        ValueError: it did not; the message lists the keys that there are and the usual fix.
    """
    if args.metric_for_best_model is None or metric_key(args.metric_for_best_model) in metrics:
        return
    key = metric_key(args.metric_for_best_model)
    available = sorted(name for name in metrics if name.startswith("eval_"))
    if metrics.get("eval_examples") == 0:
        raise ValueError("the evaluation set has no rows, so nothing decides which checkpoint is best; give it rows.")
    fix = "set metric_for_best_model to one of these"
    if key.endswith("_loss") and not any(name.endswith("_loss") for name in available):
        fix = (
            f"no loss was computed because the label columns {list(label_names)} were not in the batches; name the "
            'ones of your model, e.g. TrainingArguments(label_names=["labels"])'
        )
    raise ValueError(
        f"metric_for_best_model={args.metric_for_best_model!r}, but this evaluation gave no {key!r}. "
        f"It gave: {', '.join(available) or 'nothing'}. Fix: {fix}."
    )


def is_better(value: float, best: float | None, *, greater_is_better: bool) -> bool:
    """Say whether ``value`` beats ``best``; NaN and infinity never do, and a tie does not.

    Example:
        >>> is_better(0.5, None, greater_is_better=True), is_better(float("nan"), None, greater_is_better=True)
        (True, False)
    """
    if not math.isfinite(value):
        return False
    if best is None or not math.isfinite(best):
        return True
    return value > best if greater_is_better else value < best


def best_needs_checkpoint(args: TrainingArguments) -> bool:
    """Say whether a new best is written at once.

    It is whenever somebody will want it back: at the end, under ``save_strategy="best"``, or because the user named
    the metric. A metric that upstream filled in for a plateau scheduler alone writes nothing.
    """
    if args.metric_for_best_model is None:
        return False
    if args.load_best_model_at_end or args.save_strategy == SaveStrategy.BEST:
        return True
    plateau = args.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy")
    return bool(getattr(args, "best_metric_named", not plateau))


def note_best(
    args: TrainingArguments, state: TrainerState, control: TrainerControl, value: float, run_dir: str
) -> bool:
    """Record a new best in the state and ask for its checkpoint; return whether it was one."""
    if not is_better(value, state.best_metric, greater_is_better=bool(args.greater_is_better)):
        return False
    state.best_metric = value
    if best_needs_checkpoint(args):
        state.best_global_step = state.global_step
        state.best_model_checkpoint = os.path.join(run_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        control.should_save = True
    elif args.save_strategy != SaveStrategy.NO:
        state.best_global_step = state.global_step
    return True


def check_sets(names: Collection[Any]) -> None:
    """Check that there is an evaluation set, and that no two of them log under the same keys.

    Raises:
        ValueError: an empty dictionary of sets, or two names that differ only in characters that trackers refuse.
    """
    if not names:
        raise ValueError(
            "eval_dataset={} holds no set; allowed are a data set and a dictionary of them, e.g. "
            'eval_dataset={"validation": rows}, or None for no evaluation.'
        )
    of_prefix: dict[str, list[Any]] = {}
    for name in names:
        of_prefix.setdefault(set_prefix(f"eval_{name}"), []).append(name)
    for prefix, same in of_prefix.items():
        if len(same) > 1:
            raise ValueError(
                f"the evaluation sets {same} would both log as {prefix}_...; allowed are names that differ in letters, "
                "digits or one of _./-, so rename one of them."
            )


def named_set(sets: Any, name: str) -> Any:
    """Return the evaluation set of that name.

    Raises:
        ValueError: there is none; the message lists those that there are.

    Example:
        >>> named_set({"a": [1], "b": [2]}, "b")
        [2]
    """
    if isinstance(sets, Mapping) and name in sets:
        return sets[name]
    names = ", ".join(map(repr, sets)) if isinstance(sets, Mapping) else "none, since eval_dataset is one data set"
    raise ValueError(
        f"there is no evaluation set {name!r}; allowed are the names in eval_dataset ({names}), or pass the rows "
        "themselves, e.g. trainer.evaluate(rows)."
    )


def check_watched_set(args: TrainingArguments, names: Collection[str], *, metrics_of_others: bool) -> None:
    """Check that the watched metric names one of several evaluation sets.

    Args:
        args: the arguments.
        names: names of the evaluation sets.
        metrics_of_others: True when a subclass adds metrics of its own, whose keys are not known.

    Raises:
        ValueError: the metric that decides belongs to none of the sets.
    """
    if args.metric_for_best_model is None or metrics_of_others:
        return
    watched = metric_key(args.metric_for_best_model)
    if watched_set(watched, names) is not None:
        return
    keys = [f"{set_prefix(f'eval_{name}')}_loss".removeprefix("eval_") for name in names]
    choices = ", ".join(keys)
    raise ValueError(
        f"metric_for_best_model={args.metric_for_best_model!r} names none of the evaluation sets {list(names)}; with "
        f"several sets every metric begins with the name of its set: {choices}, ... "
        f'Fix: metric_for_best_model="{keys[0]}".'
    )
