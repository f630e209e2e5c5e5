"""Checks and completions when a PlusTrainer is made, and the contexts that its evaluations run in."""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from transformers import Seq2SeqTrainer, Trainer, TrainingArguments

from hf_trainplus import _upstream as upstream
from hf_trainplus.evaluation.metric_values import metric_direction
from hf_trainplus.training.labels import find_label_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn


_SEQ2SEQ_FIELD = "generation_config"


def check_arguments_kind(cls: type, plus: type, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Refuse plain Plus arguments for a trainer that would rebuild them as its own kind, or that needs more of them.

    Raises:
        TypeError: the message holds the class to define or to take.
    """
    given = kwargs.get("args", args[1] if len(args) > 1 else None)
    if isinstance(given, TrainingArguments) and issubclass(cls, Seq2SeqTrainer) and not hasattr(given, _SEQ2SEQ_FIELD):
        raise TypeError(
            f"{cls.__name__} was given {type(given).__name__}; allowed are Seq2SeqTrainingArguments and their kinds, "
            "e.g. args=PlusSeq2SeqTrainingArguments(...)."
        )
    if not isinstance(given, TrainingArguments) or not hasattr(given, "eval_confidence"):
        return
    for base in cls.__mro__[: cls.__mro__.index(plus)]:
        needed = _own_arguments_class(base)
        if needed is not None and not isinstance(given, needed):
            raise TypeError(
                f"{cls.__name__} was given {type(given).__name__}, but {base.__name__} rebuilds arguments that are no "
                f"{needed.__name__}. Define @dataclass class Args({needed.__name__}, {type(given).__name__}): pass "
                "and pass args=Args(...)."
            )


def _own_arguments_class(base: type) -> type | None:
    """Return the arguments class that a trainer class asks for in its signature, if it is a kind of its own."""
    if "__init__" not in vars(base) or not issubclass(base, Trainer):
        return None
    try:
        hints = typing.get_type_hints(base.__init__)
    except (NameError, TypeError):
        return None
    annotation = hints.get("args")
    kinds = typing.get_args(annotation) or (annotation,)
    own = [
        kind
        for kind in kinds
        if inspect.isclass(kind) and issubclass(kind, TrainingArguments) and not kind.__module__.startswith(_NOT_OWN)
    ]
    return own[0] if own else None


RACE_FILE = "trainplus_race.npz"
SUBSET_FILE = "trainplus_subset.npz"
_NOT_OWN = ("transformers.", "hf_trainplus.")


def take_named_sets(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Return what upstream is to be made with, and the training data as it was given.

    Of a mapping of data sets upstream is given the first one.

    Example:
        >>> take_named_sets((), {"train_dataset": {"clean": [1], "noisy": [2]}})
        ((), {'train_dataset': [1]}, {'clean': [1], 'noisy': [2]})
    """
    given = kwargs.get("train_dataset", args[_TRAIN_DATASET] if len(args) > _TRAIN_DATASET else None)
    if not isinstance(given, Mapping):
        return args, kwargs, given
    first = next(iter(given.values()), None)
    if "train_dataset" in kwargs:
        return args, {**kwargs, "train_dataset": first}, given
    return (*args[:_TRAIN_DATASET], first, *args[_TRAIN_DATASET + 1 :]), kwargs, given


# its place among the arguments of Trainer
_TRAIN_DATASET = 3


def complete_label_names(trainer: Trainer) -> None:
    """Find the label names behind a wrapper when upstream found none and the user named none."""
    if trainer.args.label_names is None and not trainer.label_names:
        trainer.label_names = find_label_names(cast("nn.Module", trainer.model))


def holds_subset(checkpoint_dir: str | None) -> bool:
    """Say whether the run of a checkpoint is judged on a subset, so that its best is owed an evaluation of all rows."""
    return checkpoint_dir is not None and os.path.isfile(os.path.join(checkpoint_dir, SUBSET_FILE))


def holds_race(checkpoint_dir: str | None) -> bool:
    """Say whether a checkpoint holds a race, which must be settled even when no step is left to take."""
    return checkpoint_dir is not None and os.path.isfile(os.path.join(checkpoint_dir, RACE_FILE))


def warn_of_plain_arguments(trainer: Trainer) -> None:
    """Say what plain arguments would decide wrongly, or what an evaluation here does not do."""
    args = trainer.args
    name = args.metric_for_best_model
    if name is not None and not hasattr(args, "eval_confidence"):
        try:
            larger = metric_direction(name)
        except ValueError:
            larger = bool(args.greater_is_better)
        if larger is not bool(args.greater_is_better):
            upstream.logger.warning(
                f"metric_for_best_model={name!r} with greater_is_better={args.greater_is_better}: of this metric "
                f"{'larger' if larger else 'smaller'} values are better. Use PlusTrainingArguments, or set "
                f"greater_is_better={larger}."
            )


def require_evaluations(trainer: Trainer) -> None:
    """Refuse to load a best model at the end when nothing would ever be evaluated.

    Raises:
        ValueError: no evaluation is scheduled and no callback of the user's could ask for one.
    """
    args = trainer.args
    scheduled = args.eval_strategy != "no" or getattr(args, "eval_schedule", "fixed") != "fixed"
    scheduled = scheduled or getattr(args, "plan", None) is not None  # its stages say when
    theirs = [cb for cb in trainer.callback_handler.callbacks if not type(cb).__module__.startswith(_NOT_ASKING)]
    if args.load_best_model_at_end and not scheduled and not theirs:
        raise ValueError(
            "load_best_model_at_end=True with eval_strategy='no': nothing would be evaluated, so there is no best. Set "
            "eval_strategy='steps' and eval_steps, eval_schedule='adaptive', or load_best_model_at_end=False."
        )


_NOT_ASKING = (
    "transformers.",
    "hf_trainplus.callbacks.step_clock",
    "hf_trainplus.callbacks.evaluation_progress",
    "hf_trainplus.callbacks.stop_signals",
)


@contextmanager
def flag(owner: Any, name: str) -> Iterator[None]:
    """Set an attribute to True inside the context; nested contexts leave it as they found it."""
    before = getattr(owner, name)
    setattr(owner, name, True)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def preserve_mode(trainer: Trainer) -> Iterator[None]:
    """Put the model back in train or eval mode after an evaluation has been logged, not before.

    Trainers tell by the mode whether they log for training or for evaluation.
    """
    training = cast("nn.Module", trainer.model).training
    try:
        yield
    finally:
        cast("nn.Module", trainer.model).train(training)
