"""Whether a metric function can be given the argmax of its predictions, read off its source."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any, Literal

from hf_trainplus.evaluation.metrics.inference.flow import PredictionFlow
from hf_trainplus.evaluation.metrics.inference.uses import NotOnlyArgmax


def infer_reduction(function: Callable[..., Any], *, ndim: int | None = None) -> Literal["argmax", "logits"]:
    """Say what a metric function needs of the logits: their argmax over the last axis, or all of them.

    ``argmax`` is the answer only where the source shows that ``argmax`` over the last axis is the first and only thing
    that is done to the predictions (which may be taken out of a tuple first), so that the function's result cannot
    change. Where the source is not at hand, is not the code that runs, or does anything else with them (shapes,
    softmax, loops, a call of another function), the answer is ``logits``. The function is not called.

    Args:
        function: a plain function or method of an ``EvalPrediction``.
        ndim: number of dimensions of the logits, where it is known; ``axis=1`` is the last axis when it is 2.

    Returns:
        ``"argmax"`` or ``"logits"``.

    Example:
        >>> infer_reduction(lambda p: {"rows": len(p.predictions)})
        'logits'
    """
    definition = _definition(function)
    if definition is None:
        return "logits"
    node, plain = definition
    flow = PredictionFlow(_resolver(plain), ndim)
    try:
        return "argmax" if flow.reduces(node, skip_self=isinstance(function, MethodType)) else "logits"
    except NotOnlyArgmax:
        return "logits"


def _definition(function: Callable[..., Any]) -> tuple[ast.FunctionDef, FunctionType] | None:
    plain = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(plain, FunctionType) or hasattr(plain, "__wrapped__"):
        return None
    try:
        source = textwrap.dedent(inspect.getsource(plain))
        module = ast.parse(source)
    except (OSError, TypeError, SyntaxError):  # typed into a shell, built by exec, or a piece of a line
        return None
    node = module.body[0] if len(module.body) == 1 else None
    if not isinstance(node, ast.FunctionDef) or node.decorator_list or not _is_running_code(source, plain.__code__):
        return None
    return node, plain


def _is_running_code(source: str, running: CodeType) -> bool:
    """Compare with the compiled source, since a file may have been edited after it was imported."""
    compiled = compile(source, running.co_filename, "exec", dont_inherit=True)
    for code in compiled.co_consts:
        if isinstance(code, CodeType) and code.co_name == running.co_name:
            return _fingerprint(code) == _fingerprint(running)
    return False


def _fingerprint(code: CodeType) -> tuple[Any, ...]:
    # a variable of an enclosing function is a global one in the source alone, so names are compared whatever their kind
    names = {*code.co_names, *code.co_freevars}
    constants = [value for value in code.co_consts if not isinstance(value, CodeType)]
    return names, set(code.co_varnames) | set(code.co_cellvars), repr(constants)


def _resolver(function: FunctionType) -> Callable[[str], Any]:
    code = function.__code__
    enclosing = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))

    def resolve(name: str) -> Any:
        if name in code.co_varnames or name in code.co_cellvars:
            return None
        if name in enclosing:
            try:
                return enclosing[name].cell_contents
            except ValueError:  # not yet assigned
                return None
        return function.__globals__.get(name, getattr(builtins, name, None))

    return resolve
