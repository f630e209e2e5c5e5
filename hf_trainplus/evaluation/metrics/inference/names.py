"""Names in a piece of source: which of them belong to the function around it."""

from __future__ import annotations

import ast
from collections.abc import Iterable

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# their bodies run later than where they stand
_DEFERRED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.GeneratorExp)
INNER_SCOPES = (*_COMPREHENSIONS, *_DEFERRED)


def free_names(node: ast.AST) -> set[str]:
    """Return the names of a node that an inner scope in it does not bind itself.

    Local variables of an inner function count as free, which errs on the safe side.
    """
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, _COMPREHENSIONS):
        first = node.generators[0].iter  # the one part that is evaluated outside
        inner = _of_children(node, apart_from=first)
        return free_names(first) | (inner - {name for part in node.generators for name in _targets(part.target)})
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        arguments = node.args
        bound = {part.arg for part in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        bound |= {part.arg for part in (arguments.vararg, arguments.kwarg) if part is not None}
        outside = _of_all([*arguments.defaults, *(value for value in arguments.kw_defaults if value is not None)])
        body = node.body if isinstance(node.body, list) else [node.body]
        return outside | (_of_all(body) - bound) | _of_all(getattr(node, "decorator_list", []))
    return _of_children(node)


def deferred_names(node: ast.FunctionDef) -> set[str]:
    """Return the names that inner functions, lambdas and generators of a function may read later on."""
    return _of_all(part for part in ast.walk(node) if part is not node and isinstance(part, _DEFERRED))


def stored_names(node: ast.AST) -> set[str]:
    """Return the names that a node assigns anywhere in it."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}


def _of_children(node: ast.AST, apart_from: ast.AST | None = None) -> set[str]:
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.comprehension):
            found |= _of_all(part for part in ast.iter_child_nodes(child) if part is not apart_from)
        elif child is not apart_from:
            found |= free_names(child)
    return found


def _of_all(nodes: Iterable[ast.AST]) -> set[str]:
    return {name for node in nodes for name in free_names(node)}


def _targets(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
