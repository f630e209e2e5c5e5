"""The fingerprint of any Python object: its values, and the code of what it calls."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from hf_trainplus.evaluation.fingerprints.code import NOTHING, captured, check_home, code_parts, uses_of
from hf_trainplus.evaluation.fingerprints.libraries import library_of
from hf_trainplus.identity import Digest, UnknownIdentityError, fingerprint_array, plain_bytes

Kind = Callable[[Any], Any]
"""Given an object, returns what is fingerprinted in its place (values, types, functions), or None for other objects."""

MOST_OBJECTS = 200_000
_BUILTINS = (
    BuiltinFunctionType,
    MethodDescriptorType,
    WrapperDescriptorType,
    MethodWrapperType,
    ClassMethodDescriptorType,
)
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made while the program runs, not compiled in
_SLOTS = (GetSetDescriptorType, MemberDescriptorType)
_ACCESSORS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.cached_property: ("func",),
    functools._lru_cache_wrapper: ("__wrapped__",),
}
_MADE_BY_PYTHON = """__dict__ __weakref__ __module__ __doc__ __qualname__ __firstlineno__ __static_attributes__
__annotations__ __annotate__ __annotate_func__ __annotations_cache__ __abstractmethods__ _abc_impl __dataclass_fields__
__dataclass_params__ __match_args__ __parameters__ __orig_bases__ __slots__ __repr__ __str__ __del__"""
_MAKING = "__init__ __new__ __post_init__ __getstate__ __setstate__ __reduce__ __reduce_ex__"
# these change nothing that a class computes
_NOT_CODE = frozenset(_MADE_BY_PYTHON.split())
# the effect of these is in the object's state already
_CONSTRUCTION = frozenset(_MAKING.split())


class ObjectWalk:
    """Takes in objects one after another, each by what it consists of; an object that comes again counts by its place.

    It runs nothing of what it is given but what pickling it would run. Code of libraries counts by their version, code
    of anybody else by its bytecode, default and captured values and the globals that it uses. State that a function
    reaches only when it runs is not seen.

    Args:
        kinds: tried first, in order.
        strict: refuse functions whose value depends on more than their arguments (see ``uses_of``).

    Raises:
        UnknownIdentityError: by ``add``, where what an object consists of cannot be known; the text is the reason.
    """

    def __init__(self, kinds: Iterable[Kind] = (), *, strict: bool = True) -> None:
        self._kinds = tuple(kinds)
        self._strict = strict
        self._digest = Digest()
        self._seen: dict[tuple[int, bool], int] = {}
        self._alive: list[object] = []  # an id stands for an object only while that lives

    def text(self) -> str:
        """Return the fingerprint of all objects so far."""
        return self._digest.text()

    def add(self, value: Any) -> None:
        """Take in an object with all that it refers to."""
        plain = plain_bytes(value)
        if plain is not None:
            self._digest.add("plain", plain)
        elif type(value) in (list, tuple):
            self._many(type(value).__name__, value)
        elif type(value) is dict:
            self._many("dict", [item for pair in value.items() for item in pair])
        elif type(value) in (set, frozenset):
            self._set(value)
        elif (id(value), self._strict) in self._seen:
            self._digest.add("seen", str(self._seen[id(value), self._strict]))
        else:
            self._remember(value)
            self._object(value)

    def _remember(self, value: Any) -> None:
        if len(self._alive) >= MOST_OBJECTS:
            raise UnknownIdentityError(f"it refers to more than {MOST_OBJECTS} objects")
        self._seen[id(value), self._strict] = len(self._alive)
        self._alive.append(value)

    def _many(self, label: str, values: Iterable[Any]) -> None:
        items = list(values)
        self._digest.add(label, str(len(items)))
        for item in items:
            self.add(item)

    def _set(self, values: Iterable[Any]) -> None:
        written = [plain_bytes(value) for value in values]
        if None in written:
            raise UnknownIdentityError("a set of other things than texts and numbers has no order")
        self._digest.add("set", *sorted(piece for piece in written if piece is not None))

    def _object(self, value: Any) -> None:
        for kind in self._kinds:
            content = kind(value)
            if content is not None:
                self._many("kind", [content])
                return
        if value is NOTHING:
            self._digest.add("nothing")
        elif isinstance(value, (np.ndarray, np.generic)):
            self._digest.add(type(value).__name__, fingerprint_array(np.asarray(value)))
        elif isinstance(value, ModuleType):
            self._module(value)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType):
            self._many("method", (value.__func__, value.__self__))
        elif isinstance(value, _BUILTINS):
            self._builtin(value)
        elif isinstance(value, CodeType):
            self._many("code", code_parts(value))
        elif isinstance(value, type):
            self._class(value)
        elif type(value) in _ACCESSORS:
            self._many(type(value).__name__, [getattr(value, name) for name in _ACCESSORS[type(value)]])
        else:
            self._state(value)

    def _module(self, module: ModuleType) -> None:
        library = library_of(module.__name__)
        if library is None:
            raise UnknownIdentityError(f"it uses the module {module.__name__} as a whole")
        self._check("the module", module)
        self._digest.add("module", module.__name__, library)

    def _check(self, name: str, value: Any) -> None:
        if self._strict:
            check_home(name, value)

    def _function(self, function: FunctionType) -> None:
        # functools.wraps copies __module__, so where a function was written is read from its globals
        home = str(function.__globals__.get("__name__", ""))
        library = library_of(home)
        self._check(function.__name__, function)
        around = {name: value for name, value in captured(function).items() if not isinstance(value, ModuleType)}
        if library is not None:
            self._many("function", (home, function.__qualname__, library, around))
            return
        self._many("function", (function.__code__, function.__defaults__, function.__kwdefaults__))
        attributes = {name: value for name, value in vars(function).items() if name != "__wrapped__"}
        self._many("around", (around, attributes))
        try:
            uses = uses_of(function, strict=self._strict)
        except UnknownIdentityError as error:
            raise UnknownIdentityError(f"in {function.__qualname__}, {error}") from error
        for use in uses:
            self._digest.add("use", use.name)
            self.add(use.value)

    def _builtin(self, function: Any) -> None:
        self._check(function.__name__, function)
        owner = getattr(function, "__self__", None)
        home = str(getattr(function, "__module__", None))
        self._digest.add("builtin", function.__qualname__, home, library_of(home) or "")
        self.add(None if isinstance(owner, ModuleType) else owner)

    def _class(self, cls: type) -> None:
        # what says that it is of a library must also be found there
        library = library_of(cls.__module__) if not cls.__flags__ & _HEAP_TYPE or _is_found(cls) else None
        self._check(cls.__name__, cls)
        if library is not None:
            self._digest.add("class", cls.__module__, cls.__qualname__, library)
            return
        self._many("class", (cls.__qualname__, list(cls.__bases__)))
        for name, value in sorted(vars(cls).items()):
            if name in _NOT_CODE or isinstance(value, _SLOTS):
                continue
            self._digest.add("member", name)
            strict, self._strict = self._strict, self._strict and name not in _CONSTRUCTION
            try:
                self.add(value)
            finally:
                self._strict = strict

    def _state(self, value: Any) -> None:
        try:
            reduced = value.__reduce_ex__(2)
        except Exception as error:  # whatever an object's own way to be pickled raises, its content stays unknown
            raise UnknownIdentityError(f"what a {type(value).__name__} holds cannot be read ({error})") from error
        if isinstance(reduced, str):
            home = [getattr(value, name, None) for name in ("__module__", "__qualname__")]
            self._many("global", (type(value), reduced, home))
            return
        make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        self._many("object", (type(value), make, arguments))
        self._many("state", (sorted_state(state), list(items or ()), list(pairs or ())))


def _is_found(cls: type) -> bool:
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is cls


def sorted_state(state: Any) -> Any:
    """Return an object's attributes by name: their order says only which was set first."""
    if isinstance(state, Mapping) and all(isinstance(name, str) for name in state):
        return dict(sorted(state.items()))
    return state
