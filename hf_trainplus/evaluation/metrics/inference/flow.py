"""Follows a metric function's predictions through its source, statement by statement."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from hf_trainplus.evaluation.metrics.inference.names import deferred_names, stored_names
from hf_trainplus.evaluation.metrics.inference.uses import Kind, NotOnlyArgmax, PredictionUses


class PredictionFlow:
    """Abstract run of one function; everything that it does not know counts as another use of the predictions.

    Args:
        resolve: value of a name that the function does not bind itself, None when there is none.
        ndim: dimensions of the logits, None when unknown.
    """

    def __init__(self, resolve: Callable[[str], Any], ndim: int | None) -> None:
        self._uses = PredictionUses(resolve, ndim)
        self._read_later: set[str] = set()

    def reduces(self, node: ast.FunctionDef, *, skip_self: bool) -> bool:
        """Say whether the argmax over the last axis is taken of the predictions.

        Raises:
            NotOnlyArgmax: they are used for something else.
        """
        parameters = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        if len(parameters) <= skip_self:
            return False
        self._read_later = deferred_names(node)
        for name in (*parameters, *(argument.arg for argument in node.args.kwonlyargs)):
            self._bind(name, Kind.OTHER)
        self._bind(parameters[skip_self], Kind.EVALUATION)
        self._run(node.body)
        return self._uses.reduced

    def _run(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._assign(node.target, node.value)
        elif isinstance(node, ast.If):
            self._branch(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        elif isinstance(node, (ast.Return, ast.Expr, ast.AugAssign, ast.Assert, ast.Raise, ast.Pass)):
            self._uses.require_other(node)
        else:
            self._pass_by(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target.elts, value)
            return
        kind = self._uses.kind(value)
        if isinstance(target, ast.Name):
            self._bind(target.id, kind)
        elif kind.tainted:
            raise NotOnlyArgmax
        else:
            self._uses.require_other(target)

    def _unpack(self, targets: list[ast.expr], value: ast.expr) -> None:
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(targets):
            kinds = [self._uses.kind(item) for item in value.elts]
        else:
            kind = self._uses.kind(value)
            if kind in (Kind.PREDICTIONS, Kind.UNCLEAR):
                raise NotOnlyArgmax
            first = Kind.PREDICTIONS if kind is Kind.EVALUATION else Kind.OTHER
            kinds = [first] + [Kind.OTHER] * (len(targets) - 1)
        for target, kind in zip(targets, kinds, strict=True):
            if not isinstance(target, ast.Name):
                raise NotOnlyArgmax
            self._bind(target.id, kind)

    def _bind(self, name: str, kind: Kind) -> None:
        if kind.tainted and name in self._read_later:
            raise NotOnlyArgmax
        self._uses.kinds[name] = kind

    def _branch(self, node: ast.If) -> None:
        if self._takes_first_of_tuple(node):
            return
        self._uses.require_other(node.test)
        before = dict(self._uses.kinds)
        self._run(node.body)
        after_body, self._uses.kinds = self._uses.kinds, before
        self._run(node.orelse)
        kinds = self._uses.kinds
        for name in {*after_body, *kinds}:
            one, other = after_body.get(name, Kind.OTHER), kinds.get(name, Kind.OTHER)
            if one is not other:
                kinds[name] = Kind.UNCLEAR if one.tainted or other.tainted else Kind.OTHER

    def _takes_first_of_tuple(self, node: ast.If) -> bool:
        """Recognise ``if isinstance(preds, tuple): preds = preds[0]``."""
        if node.orelse or len(node.body) != 1 or not self._uses.asks_for_tuple(node.test):
            return False
        only = node.body[0]
        if not isinstance(only, ast.Assign) or len(only.targets) != 1:
            return False
        target = only.targets[0]
        is_predictions = isinstance(target, ast.Name) and self._uses.kind(target) is Kind.PREDICTIONS
        return is_predictions and self._uses.is_first_item(only.value)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            is_numpy = isinstance(node, ast.Import) and alias.name == "numpy"
            self._bind(alias.asname or alias.name.partition(".")[0], Kind.NUMPY if is_numpy else Kind.OTHER)

    def _pass_by(self, node: ast.stmt) -> None:
        """Pass a loop, a ``with`` or an inner function that has nothing to do with the predictions."""
        rebound = {name for name in stored_names(node) if self._uses.kinds.get(name, Kind.OTHER) is Kind.NUMPY}
        if rebound or isinstance(node, (ast.Global, ast.Nonlocal)):
            raise NotOnlyArgmax
        self._uses.require_untouched(node)
