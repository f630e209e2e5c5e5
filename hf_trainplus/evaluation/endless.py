"""Seeing, before the first row is read, that a stream will never end."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import operator
import textwrap
from collections.abc import Iterator
from typing import Any

_ENDLESS_ITERATORS = ("count", "cycle", "repeat")


def is_endless(stream: object) -> bool:
    """Tell whether a stream surely never ends; False means that it ends or that this cannot be seen.

    It reads no row. Seen are: ``itertools`` iterators; ``datasets.IterableDataset.repeat(None)``, also below map,
    filter, interleave and concatenate, and not below take; and an ``__iter__`` (or what is behind
    ``from_generator``: a function, a method, a lambda, a partial or an object that is called) whose source yields in
    ``while True`` or over ``itertools.count``/``cycle``/``repeat`` with no way out of the loop.
    Not seen is what hides the loop elsewhere: an iterator class with ``__next__``, a helper function, a socket.

    Args:
        stream: any iterable.

    Example:
        >>> is_endless(itertools.count()), is_endless([1, 2])
        (True, False)
    """
    if isinstance(stream, itertools.count | itertools.cycle):
        return True
    if isinstance(stream, itertools.repeat):
        return operator.length_hint(stream, -1) == -1
    chain = getattr(stream, "_ex_iterable", None)
    if chain is not None:
        return _is_endless_chain(chain)
    return _never_leaves(getattr(type(stream), "__iter__", None))


def _is_endless_chain(part: Any) -> bool:
    """Follow the examples iterables of ``datasets`` by the names that they have had since ``repeat`` came."""
    kind = type(part).__name__
    if kind == "TakeExamplesIterable":
        return False
    if kind == "RepeatExamplesIterable" and part.num_times is None:
        return True
    sources = getattr(part, "ex_iterables", None)
    if sources is not None:
        ends = [not _is_endless_chain(source) for source in sources]
        stops_at_first = getattr(part, "stopping_strategy", "") == "first_exhausted" or kind.startswith("Horizontally")
        return not any(ends) if stops_at_first else not all(ends)
    source = getattr(part, "ex_iterable", None)
    if source is not None:
        return _is_endless_chain(source)
    # from_generator keeps the function in the configuration of its builder
    builder = getattr(getattr(part, "generate_examples_fn", None), "__self__", None)
    generator = getattr(getattr(builder, "config", None), "generator", None)
    return _never_leaves(generator)


def _never_leaves(given: object) -> bool:
    function = _function_of(given)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return False  # no source to judge: typed at a prompt, or compiled
    if function.__name__ == "<lambda>":  # its lines hold whatever stands beside it, other lambdas too
        lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
        return bool(lambdas) and all(_is_endless_call(node.body) for node in lambdas)
    definition = tree.body[0]
    return isinstance(definition, ast.FunctionDef) and any(map(_yields_for_ever, _own_nodes(definition)))


def _function_of(given: Any) -> Any:
    """Return the function that runs when something is called, or the thing itself where that is no function."""
    while isinstance(given, functools.partial):
        given = given.func
    if not inspect.isroutine(given):
        given = getattr(type(given), "__call__", given)  # noqa: B004 - its source is wanted, not whether there is one
    return getattr(given, "__func__", given)


def _yields_for_ever(node: ast.AST) -> bool:
    if isinstance(node, ast.YieldFrom | ast.Return) and node.value is not None:
        return _is_endless_call(node.value)
    return _is_endless_loop(node) and _yields(node) and not _has_way_out(node)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a node without entering functions that it defines."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield child
            yield from _own_nodes(child)


def _is_endless_loop(node: ast.AST) -> bool:
    if isinstance(node, ast.While):
        return isinstance(node.test, ast.Constant) and bool(node.test.value)
    return isinstance(node, ast.For) and _is_endless_call(node.iter)


def _is_endless_call(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    from_itertools = not isinstance(function, ast.Attribute) or getattr(function.value, "id", "") == "itertools"
    return from_itertools and name in _ENDLESS_ITERATORS and not (name == "repeat" and len(node.args) > 1)


def _yields(loop: ast.AST) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _own_nodes(loop))


def _has_way_out(loop: ast.AST) -> bool:
    if any(isinstance(node, ast.Return | ast.Raise) for node in _own_nodes(loop)):
        return True
    return any(_breaks(node) for node in ast.iter_child_nodes(loop))


def _breaks(node: ast.AST) -> bool:
    """Find a ``break`` that leaves this loop, not one of a loop inside it."""
    if isinstance(node, ast.Break):
        return True
    if isinstance(node, ast.For | ast.AsyncFor | ast.While):
        return any(_breaks(child) for child in node.orelse)
    return any(_breaks(child) for child in ast.iter_child_nodes(node))
