"""Which modules belong to an installed library, whose code is known by its version, and which are a user's own."""

from __future__ import annotations

import site
import sys
import sysconfig
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import hf_trainplus
from hf_trainplus.identity import Digest

_PYTHON = f"python {sys.version}"


def library_of(module_name: str) -> str | None:
    """Return name and version of the library that a loaded module belongs to, or None for anybody's own module.

    A library is what lies in a folder for installed packages. Its code is taken at its version's word: whoever edits
    an installed library in place must not expect that to be seen. This package itself is known by its sources.

    Example:
        >>> library_of("__main__") is None, library_of("numpy.linalg").split()[0]
        (True, 'numpy')
    """
    top = module_name.partition(".")[0]
    if top == "__main__":
        return None
    if top in sys.stdlib_module_names:
        return _PYTHON
    if top == hf_trainplus.__name__:
        return f"{top} {_own_sources()}"
    return _installed(top) if top in sys.modules else None


def loaded_module(name: str) -> ModuleType | None:
    """Return a module that is loaded, and load one of a library; None for anybody's own that is not loaded.

    Example:
        >>> loaded_module("json.decoder").__name__, loaded_module("nobody_has_this") is None
        ('json.decoder', True)
    """
    if name in sys.modules:
        return sys.modules[name]
    top = name.partition(".")[0]
    spec = find_spec(top)
    if spec is None or not (top in sys.stdlib_module_names or _is_installed(spec.origin)):
        return None
    try:
        return import_module(name)
    except ImportError:
        return None


def _is_installed(file: str | None) -> bool:
    return file is not None and any(Path(file).is_relative_to(folder) for folder in _library_folders())


@cache
def _installed(top: str) -> str | None:
    module = sys.modules[top]
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), None)
    if file is None or not _is_installed(file):
        return None
    version = getattr(module, "__version__", None) or _version_of_distribution(top)
    if version is None:
        facts = Path(file).stat()
        version = f"{facts.st_size} bytes of {facts.st_mtime_ns}"
    return f"{top} {version}"


def _version_of_distribution(top: str) -> str | None:
    names = _distributions().get(top, [])
    return ", ".join(f"{name} {metadata.version(name)}" for name in sorted(names)) or None


@cache
def _distributions() -> dict[str, list[str]]:
    return {top: sorted(set(names)) for top, names in metadata.packages_distributions().items()}


@cache
def _library_folders() -> list[Path]:
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()}
    return [Path(folder) for folder in folders | set(site.getsitepackages())]


@cache
def _own_sources() -> str:
    digest = Digest()
    root = Path(hf_trainplus.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.add(path.relative_to(root).as_posix(), path.read_bytes())
    return digest.text()
