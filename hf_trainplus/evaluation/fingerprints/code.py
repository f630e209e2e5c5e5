"""What a Python function is made of and what outside itself it reads, as far as its bytecode shows."""

from __future__ import annotations

import builtins
import dis
import importlib.util
import itertools
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from hf_trainplus.evaluation.fingerprints.libraries import loaded_module
from hf_trainplus.identity import UnknownIdentityError

_MODULES = """os sys random secrets time datetime pathlib io socket subprocess uuid tempfile shutil glob urllib http
requests httpx numpy.random torch.random threading multiprocessing"""
_BUILTINS = "open input eval exec compile globals locals __import__ id hash"
_NAMES = """load load_dataset from_pretrained fromfile loadtxt genfromtxt read_csv read_json read_parquet read_table
read_text read_bytes hf_hub_download snapshot_download urlopen memmap random default_rng rand randn randint randperm
rand_like randn_like randint_like bernoulli multinomial poisson bernoulli_ uniform_ normal_ random_ exponential_ cauchy_
log_normal_ geometric_"""
# what these give back depends on more than their arguments
_WORLD_MODULES = frozenset(_MODULES.split())
_WORLD_BUILTINS = frozenset(_BUILTINS.split())
_WORLD_NAMES = frozenset(_NAMES.split())
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")


class Use(NamedTuple):
    """Something outside a function that its code reads.

    Args:
        name: as the code spells it, e.g. ``np.mean``.
        value: what it is now; ``NOTHING`` where the name is not defined.
    """

    name: str
    value: Any


class _Nothing:
    """Stands for the value of a name that is not defined."""


NOTHING = _Nothing()


def code_parts(code: CodeType) -> tuple[Any, ...]:
    """Return what distinguishes two codes: instructions, constants and names, not the file or the line.

    Example:
        >>> code_parts((lambda x: x + 1).__code__) == code_parts((lambda x: x + 1).__code__)
        True
        >>> code_parts((lambda x: x + 1).__code__) == code_parts((lambda x: x + 2).__code__)
        False
    """
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return (code.co_code, getattr(code, "co_exceptiontable", b""), names, counts, code.co_consts)


def uses_of(function: FunctionType, *, strict: bool = True) -> list[Use]:
    """Return the globals, builtins, imports and captured modules that a function and what is inside it read.

    Attributes of modules are followed to the thing that is used, so that ``np.mean`` is that function and not all of
    numpy. What is reached through an object at run time (``self.x.y``) is not seen here.

    Args:
        function: a function written in Python.
        strict: refuse what gives other values at another time: files, the environment, clocks, random numbers.

    Raises:
        UnknownIdentityError: it writes a global or a captured variable, imports a module that is not loaded, or reads
            the world and ``strict`` is set.
    """
    modules = {name: value for name, value in captured(function).items() if isinstance(value, ModuleType)}
    return list(_uses(function, function.__code__, modules, strict))


def captured(function: FunctionType) -> dict[str, Any]:
    """Return the values of variables outside a function that it has captured; ``NOTHING`` for one not set yet."""
    return dict(zip(function.__code__.co_freevars, map(_content, function.__closure__ or ()), strict=True))


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return NOTHING


def check_home(name: str, value: Any) -> None:
    """Refuse a thing whose home is a module, or a builtin, that gives other values at another time.

    Raises:
        UnknownIdentityError: it is one.
    """
    module = _home(value)
    parts = module.split(".")
    if {".".join(parts[: k + 1]) for k in range(len(parts))} & _WORLD_MODULES:
        raise UnknownIdentityError(f"it uses {name} of the module {module}, whose values may be others the next time")
    if isinstance(value, BuiltinFunctionType):
        own = value.__name__
        if (module == "builtins" and own in _WORLD_BUILTINS) or own in _WORLD_NAMES:
            raise UnknownIdentityError(f"it calls {name}(), whose value may be another the next time")


def _home(value: Any) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, FunctionType):
        return str(value.__globals__.get("__name__", ""))
    if isinstance(value, (BuiltinFunctionType, type)):
        return str(value.__module__ or "")
    return ""


def _uses(function: FunctionType, code: CodeType, modules: Mapping[str, Any], strict: bool) -> Iterator[Use]:
    instructions = [item for item in dis.get_instructions(code) if item.opname != "EXTENDED_ARG"]
    if strict:
        _check_names(code)
    for at, instruction in enumerate(instructions):
        operation, name = instruction.opname, instruction.argval
        _check_writes(function, operation, name)
        if operation == "IMPORT_NAME":
            level, wanted = (instructions[at - back].argval for back in (2, 1))
            yield from _imported(function, name, level, wanted, strict)
        elif operation == "LOAD_NAME" or (operation.startswith("LOAD") and "GLOBAL" in operation):
            value = function.__globals__.get(name, vars(builtins).get(name, NOTHING))
            yield _resolved(name, value, _attributes(instructions[at + 1 :]), strict)
        elif operation.startswith("LOAD") and "DEREF" in operation and name in modules:
            yield _resolved(name, modules[name], _attributes(instructions[at + 1 :]), strict)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _uses(function, constant, modules, strict)


def _attributes(instructions: Iterable[dis.Instruction]) -> list[str]:
    """Return the names of attributes that are read one from another by the first of these instructions."""
    return [str(item.argval) for item in itertools.takewhile(lambda item: item.opname in _ATTRIBUTE, instructions)]


def _check_names(code: CodeType) -> None:
    found = sorted(_WORLD_NAMES.intersection(code.co_names))
    if found:
        raise UnknownIdentityError(f"it uses {found[0]}, whose value may be another the next time")


def _check_writes(function: FunctionType, operation: str, name: Any) -> None:
    if "GLOBAL" in operation and operation.startswith(("STORE", "DELETE")):
        raise UnknownIdentityError(f"it writes the global variable {name}")
    if operation in ("STORE_DEREF", "DELETE_DEREF") and name in function.__code__.co_freevars:
        raise UnknownIdentityError(f"it writes the captured variable {name}")


def _resolved(name: str, value: Any, chain: list[str], strict: bool) -> Use:
    for attribute in chain:
        if not isinstance(value, ModuleType):
            break
        inner = getattr(value, attribute, NOTHING)
        if strict and not isinstance(inner, ModuleType):
            check_home(name, value)  # os.environ is of the world, the functions of os.path are not
        value, name = inner, f"{name}.{attribute}"
    if strict:
        check_home(name, value)
    return Use(name, value)


def _imported(function: FunctionType, name: str, level: Any, wanted: Any, strict: bool) -> Iterator[Use]:
    if level:
        name = importlib.util.resolve_name("." * level + name, function.__globals__.get("__package__") or "")
    module = loaded_module(name)
    if module is None:
        raise UnknownIdentityError(f"it imports {name}, which is not loaded yet")
    if strict:
        check_home(name, module)
    if not wanted:
        yield Use(name, module)
    for attribute in wanted or ():
        yield Use(f"{name}.{attribute}", getattr(module, attribute, NOTHING))
