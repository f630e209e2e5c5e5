"""What an expression of a metric function holds: the predictions, their argmax, or anything else."""

from __future__ import annotations

import ast
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from hf_trainplus.evaluation.metrics.inference.names import INNER_SCOPES, free_names

# these read variables that the source does not name
_READS_FRAME = ("locals", "vars", "eval", "exec", "globals", "dir")
_REFUSED = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)


class NotOnlyArgmax(Exception):  # noqa: N818 - an answer, not a fault
    """The predictions are used for something else than their argmax over the last axis."""


class Kind(Enum):
    """What a name or an expression holds."""

    EVALUATION = "the EvalPrediction"
    PREDICTIONS = "the predictions, untouched"
    UNCLEAR = "the predictions on one path and something else on another"
    NUMPY = "the numpy module"
    OTHER = "anything else"

    @property
    def tainted(self) -> bool:
        """Whether the untouched predictions can be reached through it."""
        return self in (Kind.EVALUATION, Kind.PREDICTIONS, Kind.UNCLEAR)


class PredictionUses:
    """Judges expressions, given what the local variables hold.

    Args:
        resolve: value of a name that the function does not bind itself, None when there is none.
        ndim: dimensions of the logits, None when unknown.
    """

    def __init__(self, resolve: Callable[[str], Any], ndim: int | None) -> None:
        self.kinds: dict[str, Kind] = {}
        self.reduced = False
        self._resolve = resolve
        self._last_axes = {-1} if ndim is None else {-1, ndim - 1}

    def kind(self, node: ast.expr) -> Kind:
        """Return what an expression holds.

        Raises:
            NotOnlyArgmax: a part of it uses the predictions otherwise.
        """
        if isinstance(node, ast.Name):
            self._refuse_frame_reader(node)
            return self.kinds.get(node.id, Kind.OTHER)
        if isinstance(node, (ast.Attribute, ast.Subscript)) and self._is_evaluation(node.value):
            return self._part(node)
        if isinstance(node, ast.IfExp) and self.asks_for_tuple(node.test):
            if self.is_first_item(node.body) and self.kind(node.orelse) is Kind.PREDICTIONS:
                return Kind.PREDICTIONS
            raise NotOnlyArgmax
        if isinstance(node, ast.Call) and self._is_argmax(node):
            self.reduced = True
            return Kind.OTHER
        self._require_other_parts(node)
        return Kind.OTHER

    def require_other(self, node: ast.AST) -> None:
        """Check that neither a node nor a part of it holds the untouched predictions.

        Raises:
            NotOnlyArgmax: it does.
        """
        if not isinstance(node, ast.expr):
            self._require_other_parts(node)
        elif self.kind(node).tainted:
            raise NotOnlyArgmax

    def require_untouched(self, node: ast.AST) -> None:
        """Check that no name in a node is one of the tainted.

        Raises:
            NotOnlyArgmax: there is one.
        """
        for name in free_names(node):
            if self.kinds.get(name, Kind.OTHER).tainted:
                raise NotOnlyArgmax
        for part in ast.walk(node):
            self._refuse_frame_reader(part)

    def asks_for_tuple(self, node: ast.expr) -> bool:
        """Recognise ``isinstance(predictions, tuple)``, also with ``(tuple, list)``."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2):
            return False
        choices = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
        return (
            self._value_of(node.func) is isinstance
            and not node.keywords
            and all(isinstance(choice, ast.Name) and self._value_of(choice) in (tuple, list) for choice in choices)
            and self.kind(node.args[0]) is Kind.PREDICTIONS
        )

    def is_first_item(self, node: ast.expr) -> bool:
        """Recognise ``predictions[0]``."""
        return (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Constant)
            and node.slice.value == 0
            and self.kind(node.value) is Kind.PREDICTIONS
        )

    def _is_evaluation(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and self.kinds.get(node.id) is Kind.EVALUATION

    def _part(self, node: ast.Attribute | ast.Subscript) -> Kind:
        """Return what ``p.predictions`` or ``p[0]`` holds."""
        if isinstance(node, ast.Attribute):
            part: object = node.attr
        else:
            part = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if part in ("predictions", 0):
            return Kind.PREDICTIONS
        if part in ("label_ids", "inputs", "losses", 1, 2, 3):
            return Kind.OTHER
        raise NotOnlyArgmax

    def _require_other_parts(self, node: ast.AST) -> None:
        if isinstance(node, _REFUSED):
            raise NotOnlyArgmax
        if isinstance(node, INNER_SCOPES):
            self.require_untouched(node)
            return
        for child in ast.iter_child_nodes(node):
            self.require_other(child)

    def _is_argmax(self, node: ast.Call) -> bool:
        function = node.func
        if isinstance(function, ast.Name):
            return self._value_of(function) is np.argmax and self._over_last_axis(node.args, node.keywords)
        if not isinstance(function, ast.Attribute) or function.attr != "argmax":
            return False
        if isinstance(function.value, ast.Name) and self._is_numpy(function.value):
            return self._over_last_axis(node.args, node.keywords)
        return self._over_last_axis([function.value, *node.args], node.keywords)

    def _over_last_axis(self, arguments: list[ast.expr], keywords: list[ast.keyword]) -> bool:
        named = {keyword.arg: keyword.value for keyword in keywords}
        axis = arguments[1] if len(arguments) == 2 else named.get("axis")
        if not arguments or len(arguments) + len(named) != 2 or axis is None:
            return False
        try:
            value = ast.literal_eval(axis)
        except ValueError:
            return False
        return type(value) is int and value in self._last_axes and self.kind(arguments[0]) is Kind.PREDICTIONS

    def _value_of(self, name: ast.Name) -> Any:
        return None if name.id in self.kinds else self._resolve(name.id)

    def _is_numpy(self, name: ast.Name) -> bool:
        return self.kinds.get(name.id) is Kind.NUMPY or self._value_of(name) is np

    def _refuse_frame_reader(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name) and node.id in _READS_FRAME and node.id not in self.kinds:
            raise NotOnlyArgmax
