"""Takes the batches out of a training loader, so that a run that may take no step takes none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from transformers import TrainingArguments

# Accelerate's loaders have a property of this name that shows the inner loader's class; the slot of `object` is real
_CLASS = vars(object)["__class__"]


def _not_about_empty_loaders(record: logging.LogRecord) -> bool:
    return "not to be a single sample" not in record.getMessage()


def hold_back_batches(loader: Any, args: TrainingArguments) -> Callable[[], None] | None:
    """Make a loader yield nothing until the returned function is called.

    A Trainer looks at ``control.should_training_stop`` only after a step; with no batch there is no step. The loader
    gets a class of its own whose iterator is empty: no row is read, no worker starts, no rank waits for another. In
    the middle of an epoch a Trainer would skip the rows of the steps before with a loader made anew, so
    ``ignore_data_skip`` is set meanwhile.

    Args:
        loader: what callbacks are given as ``train_dataloader``.
        args: the Trainer's arguments.

    Returns:
        A function that puts both back, or None for an object whose class cannot be exchanged.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> from types import SimpleNamespace
        >>> loader = DataLoader([1, 2])
        >>> put_back = hold_back_batches(loader, SimpleNamespace(ignore_data_skip=False))
        >>> len(list(loader)), put_back(), len(list(loader))
        (0, None, 2)
    """
    original = type(loader)
    try:
        _CLASS.__set__(loader, type(original.__name__, (original,), {"__iter__": lambda self: iter(())}))
    except TypeError:
        return None
    skip, args.ignore_data_skip = args.ignore_data_skip, True
    # upstream takes an empty loader for a stream that ran dry, and says so
    trainer_logger = logging.getLogger("transformers.trainer")
    trainer_logger.addFilter(_not_about_empty_loaders)

    def put_back() -> None:
        trainer_logger.removeFilter(_not_about_empty_loaders)
        _CLASS.__set__(loader, original)
        args.ignore_data_skip = skip

    return put_back
