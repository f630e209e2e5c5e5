"""Which parameters a stage trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def trainable_names(trainable: Mapping[str, bool], patterns: Sequence[str], stage: str) -> set[str]:
    """Return the parameters that a stage trains.

    Args:
        trainable: parameter -> whether the run trains it at all.
        patterns: names, or patterns with ``*`` and ``?``, of what the stage does not train.
        stage: its name, for messages.

    Raises:
        ValueError: a pattern that fits no parameter, or nothing left to train.

    Example:
        >>> sorted(trainable_names({"embed.weight": True, "head.weight": True}, ["embed.*"], "tune"))
        ['head.weight']
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in trainable):
            raise ValueError(
                f"stage {stage!r}: freeze has {pattern!r}, which fits no parameter. There are {_some(trainable)}. "
                "Write e.g. '*.embeddings.*'."
            )
    left = {
        name
        for name, trains in trainable.items()
        if trains and not any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    if not left:
        raise ValueError(f"stage {stage!r}: freeze={list(patterns)} leaves nothing to train; take a pattern out.")
    return left


def freeze_all_but(model: nn.Module, names: set[str]) -> None:
    """Let the named parameters train and no other; gradients of the others are dropped."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
        if name not in names:
            parameter.grad = None


def _some(names: Mapping[str, bool]) -> str:
    shown = list(names)[:6]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")
