"""Where the labels of a model are, also behind wrappers whose signature hides them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn
from transformers.utils.generic import find_labels

_INNER = ("get_base_model", "base_model", "module", "_orig_mod", "model", "backbone", "inner", "wrapped")
_USUAL = ("labels", "label", "label_ids", "start_positions", "end_positions")


def find_label_names(model: nn.Module) -> list[str]:
    """Return the names of the label arguments of the first module that names any, from the outside in.

    Upstream reads only the outermost signature, which for a wrapper is ``*args, **kwargs``.

    Example:
        >>> from torch import nn
        >>> class Head(nn.Module):
        ...     def forward(self, x, labels=None):
        ...         return x
        >>> class Wrapper(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.inner = Head()
        ...     def forward(self, *args, **kwargs):
        ...         return self.inner(*args, **kwargs)
        >>> find_label_names(Wrapper())
        ['labels']
    """
    for module in _outside_in(model):
        names = find_labels(type(module))  # type: ignore[no-untyped-call, unused-ignore]
        if names:
            return list(names)
    return []


def labels_in_batch(batch: Mapping[str, Any]) -> list[str]:
    """Return the usual label names that a batch holds, for a model that names none."""
    spans = [name for name in _USUAL[3:] if name in batch]
    return spans if len(spans) == 2 else [name for name in _USUAL[:3] if name in batch][:1]


def _outside_in(model: nn.Module, depth: int = 4) -> Iterator[nn.Module]:
    yield model
    if depth == 0 or not _hides_arguments(model):
        return
    for name in _INNER:
        inner = getattr(model, name, None)
        inner = inner() if inspect.ismethod(inner) else inner
        if isinstance(inner, nn.Module) and inner is not model:
            yield from _outside_in(inner, depth - 1)
            return
    children = list(model.children())
    if len(children) == 1:
        yield from _outside_in(children[0], depth - 1)


def _hides_arguments(module: nn.Module) -> bool:
    kinds = {parameter.kind for parameter in inspect.signature(module.forward).parameters.values()}
    return bool(kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})
