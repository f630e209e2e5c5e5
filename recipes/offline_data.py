"""Real text that is on every machine: which installed package does this docstring come from?

The scientific packages that are installed beside this file hold tens of thousands of docstrings. Read with Python's
``ast`` (nothing is imported), with the packages' names masked and repeats dropped, they make a classification task that
needs no network. It is no benchmark: the rows follow the versions that are installed, so accuracies compare only
between runs on the same installation.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib.util
import os
import random
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

MASK = "[package]"

# import name -> how its text names it; a name is masked wherever it occurs, also inside a longer word
PACKAGES: dict[str, tuple[str, ...]] = {
    "datasets": ("datasets",),
    "matplotlib": ("matplotlib", "pyplot"),
    "networkx": ("networkx",),
    "nltk": ("nltk", "natural language toolkit"),
    "numpy": ("numpy",),
    "pandas": ("pandas",),
    "pyarrow": ("pyarrow", "apache arrow"),
    "scipy": ("scipy",),
    "sklearn": ("scikit-learn", "scikit_learn", "sklearn", "scikit"),
    "statsmodels": ("statsmodels",),
    "sympy": ("sympy",),
    "torch": ("pytorch", "torch"),
    "torchmetrics": ("torchmetrics",),
    "transformers": ("transformers", "hugging face", "huggingface"),
}
_NAMES = sorted({name for names in PACKAGES.values() for name in names}, key=len, reverse=True)
_ALIASES = ("np", "nx", "pa", "pd", "plt", "sm", "sp")  # customary import names, masked only as words of their own
_NAMED = re.compile(
    rf"{'|'.join(map(re.escape, _NAMES))}|(?<![A-Za-z0-9])(?:{'|'.join(_ALIASES)})(?![A-Za-z0-9])", re.IGNORECASE
)

_MIN_WORDS = 5  # a shorter docstring ("Return the name.") fits any package
_SOURCE_BYTES = 2_500_000  # a package: a dozen are then read in less than 10 s of one core
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def offline_dataset(
    cache_dir: str | Path | None = None,
    *,
    seed: int = 0,
    source_bytes: int = _SOURCE_BYTES,
    packages: Iterable[str] = tuple(PACKAGES),
) -> DatasetDict:
    """Return the docstrings of the installed packages, split so that no text stands in two parts.

    It reads a seeded share of each package's files, so that the largest do not drown the others, and keeps the rows on
    disk. A package that is absent is left out; a text that two packages share has no answer and is dropped. Near
    repeats that differ in a word (the same method of two models) stay.

    Args:
        cache_dir: folder to keep the rows in; None means ``hf_trainplus`` in the user's cache folder
            (``XDG_CACHE_HOME``, else ``~/.cache``).
        seed: chooses the files.
        source_bytes: how much source is read of each package, > 0.
        packages: import names out of ``PACKAGES``.

    Returns:
        Parts ``train``, ``validation`` and ``test`` (about 8 : 1 : 1) with the columns ``text`` (str) and ``label``
        (ClassLabel: the import names, in alphabetical order).

    Raises:
        ValueError: an unknown package, fewer than two of them installed, or ``source_bytes`` not above 0.

    Example:
        >>> import tempfile
        >>> parts = offline_dataset(tempfile.mkdtemp(), source_bytes=50_000, packages=["numpy", "torch"])
        >>> sorted(parts), parts["train"].features["label"].names
        (['test', 'train', 'validation'], ['numpy', 'torch'])
    """
    if source_bytes <= 0:
        raise ValueError(
            f"source_bytes={source_bytes} reads nothing; give a number above 0, e.g. source_bytes=3_000_000."
        )
    files = {name: _files(folder) for name, folder in _installed(packages).items()}
    kept = _cache_root(cache_dir) / f"docstrings-{_fingerprint(files, seed, source_bytes)}.parquet"
    if not kept.exists():
        _write_whole(_read(files, seed, source_bytes), kept)
    return _parts(pq.read_table(kept), sorted(files))


def masked(text: str) -> str:
    """Replace the packages' names by ``[package]`` and each run of white space by one space.

    Example:
        >>> masked("Return a NumPy array;  see `np.asarray` and __torch_function__.")
        'Return a [package] array; see `[package].asarray` and __[package]_function__.'
    """
    return _NAMED.sub(MASK, " ".join(text.split()))


def _installed(packages: Iterable[str]) -> dict[str, Path]:
    wanted = sorted(set(packages))
    if unknown := [name for name in wanted if name not in PACKAGES]:
        raise ValueError(
            f"packages={unknown} are not known here; choose from {', '.join(PACKAGES)}, or add yours to PACKAGES."
        )
    specs = {name: importlib.util.find_spec(name) for name in wanted}
    found = {
        name: Path(spec.submodule_search_locations[0])
        for name, spec in specs.items()
        if spec and spec.submodule_search_locations
    }
    if len(found) < 2:
        raise ValueError(
            f"Of {', '.join(wanted)} only {', '.join(found) or 'none'} is installed; a classifier needs two classes: "
            "pip install numpy torch, or pass your own --train_file."
        )
    return found


def _files(folder: Path) -> list[tuple[Path, int]]:
    """List a package's sources and their sizes in bytes, without its tests, in an order that no file system changes."""
    sources = (path for path in folder.rglob("*.py") if "tests" not in path.parts)
    return [(path, path.stat().st_size) for path in sorted(sources)]


def _fingerprint(files: Mapping[str, list[tuple[Path, int]]], seed: int, source_bytes: int) -> str:
    """Name everything that the rows follow from: the sources, the choice among them and this file's own rules."""
    digest = hashlib.blake2b(Path(__file__).read_bytes(), digest_size=8)
    digest.update(repr((seed, source_bytes, files)).encode())
    return digest.hexdigest()


def _cache_root(cache_dir: str | Path | None) -> Path:
    if cache_dir is not None:
        return Path(cache_dir)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hf_trainplus"


def _read(files: Mapping[str, list[tuple[Path, int]]], seed: int, source_bytes: int) -> pa.Table:
    """Collect (key, text, package), one row a distinct text, ordered by key: neither by package nor by file."""
    rows: dict[str, tuple[str, str | None]] = {}
    with _garbage_left():
        for package, text in _labelled_texts(files, seed, source_bytes):
            key = hashlib.blake2b(text.casefold().encode(), digest_size=8).hexdigest()
            _, owner = rows.setdefault(key, (text, package))
            if owner != package:
                rows[key] = (text, None)
    unique = [(key, text, package) for key, (text, package) in sorted(rows.items()) if package is not None]
    return pa.table(dict(zip(("key", "text", "package"), zip(*unique, strict=True), strict=True)))


def _labelled_texts(
    files: Mapping[str, list[tuple[Path, int]]], seed: int, source_bytes: int
) -> Iterator[tuple[str, str]]:
    for package, sources in files.items():
        for path in _share(sources, seed, source_bytes):
            for text in map(masked, _docstrings(path)):
                if len(text.split()) >= _MIN_WORDS:
                    yield package, text


@contextmanager
def _garbage_left() -> Iterator[None]:
    """Switch the garbage collector off: it would scan each growing syntax tree, 2.7 times the time of parsing alone."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _share(sources: list[tuple[Path, int]], seed: int, source_bytes: int) -> Iterator[Path]:
    """Draw files at random until ``source_bytes`` are full; one that no longer fits is passed over."""
    left = source_bytes
    for path, size in random.Random(seed).sample(sources, len(sources)):  # noqa: S311 - a sample, no secret
        if size <= left:
            left -= size
            yield path


def _docstrings(path: Path) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's invalid escapes are not ours to report
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError):  # templates, Python 2, other encodings, tables of data
            return
    statements: list[ast.AST] = [tree]
    while statements:  # ast.walk would also visit every expression, six times the work
        node = statements.pop()
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield text
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            statements.extend(getattr(node, block, ()))


def _parts(rows: pa.Table, names: list[str]) -> DatasetDict:
    """Split by the key, so that a text stays in its part whatever else is installed."""
    features = Features({"text": Value("string"), "label": ClassLabel(names=names)})
    parts: dict[str, dict[str, list[str]]] = {
        part: {"text": [], "label": []} for part in ("train", "validation", "test")
    }
    for row in rows.to_pylist():
        part = parts[{0: "test", 1: "validation"}.get(int(row["key"], 16) % 10, "train")]
        part["text"].append(row["text"])
        part["label"].append(row["package"])
    return DatasetDict({part: Dataset.from_dict(columns, features=features) for part, columns in parts.items()})


def _write_whole(rows: pa.Table, path: Path) -> None:
    """Write under a name of this process and rename, so that another rank never reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    pq.write_table(rows, unfinished)
    unfinished.replace(path)
