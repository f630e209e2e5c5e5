"""Fingerprints of evaluation sets: by content, for data that lies in tables or lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from hf_trainplus.identity import UnknownIdentityError, fingerprint_array, fingerprint_named, fingerprint_table

_COMPUTED = "computes its rows when they are read, so that its content cannot be known without reading it"


class _Read(NamedTuple):
    """An Arrow dataset as it was when its content was read."""

    table: Any
    rows: Any
    content: str


class DataFingerprints:
    """Fingerprints datasets by their content; an Arrow table, which nobody can change, is read once.

    It never calls a dataset's ``__getitem__``. Known are ``datasets.Dataset`` (content of its table, selection of rows,
    features and format), lists and tuples, ``TensorDataset``, and ``Subset`` and ``ConcatDataset`` of these. Another
    torch ``Dataset`` is known by its own word: a text in its attribute ``fingerprint``, which must change whenever a
    row does.

    Args:
        of_values: fingerprints plain rows, and other values that a dataset is made of.

    Example:
        >>> import datasets
        >>> known = DataFingerprints(of_values=repr)
        >>> one, other = datasets.Dataset.from_dict({"x": [1, 2]}), datasets.Dataset.from_dict({"x": [1, 3]})
        >>> known.of(one) == known.of(other), known.of(one.select([0])) == known.of(other.select([0]))
        (False, True)
    """

    def __init__(self, of_values: Callable[[Any], str]) -> None:
        self._of_values = of_values
        self._read: WeakKeyDictionary[Any, _Read] = WeakKeyDictionary()

    def of(self, dataset: Any) -> str:
        """Return the fingerprint of a dataset.

        Raises:
            UnknownIdentityError: its content cannot be known; the text says why.
        """
        if type(dataset) in (list, tuple):
            return fingerprint_named({"kind": "rows", "content": self._of_values(list(dataset))})
        if is_arrow_dataset(dataset):
            return self._of_arrow(dataset)
        kind = type(dataset)
        if kind.__module__.startswith("torch.utils.data"):
            found = self._of_torch(kind.__name__, dataset)
            if found is not None:
                return found
        own = getattr(dataset, "fingerprint", None)
        if isinstance(own, str) and own:
            name = f"{kind.__module__}.{kind.__qualname__}"
            return fingerprint_named({"kind": name, "rows": str(len(dataset)), "content": own})
        raise UnknownIdentityError(f"the evaluation set, a {kind.__name__}, {_COMPUTED}")

    def _of_torch(self, kind: str, dataset: Any) -> str | None:
        if kind == "Subset":
            rows = fingerprint_array(np.asarray(dataset.indices, dtype=np.int64))
            return fingerprint_named({"kind": kind, "content": self.of(dataset.dataset), "rows": rows})
        if kind == "ConcatDataset":
            parts = {str(place): self.of(part) for place, part in enumerate(dataset.datasets)}
            return fingerprint_named({"kind": kind, **parts})
        if kind == "TensorDataset":
            return fingerprint_named({"kind": kind, "content": self._of_values(list(dataset.tensors))})
        return None

    def _of_arrow(self, dataset: Any) -> str:
        form = dataset.format
        if form["type"] == "custom":
            raise UnknownIdentityError(f"the evaluation set has a transform and {_COMPUTED}")
        read = self._read.get(dataset)
        if read is None or read.table is not dataset.data or read.rows is not dataset._indices:
            read = self._read[dataset] = _Read(dataset.data, dataset._indices, _content(dataset))
        shown = [form[key] for key in ("type", "columns", "output_all_columns", "format_kwargs")]
        return fingerprint_named({"kind": "arrow", "content": read.content, "shown": self._of_values(shown)})


def is_arrow_dataset(dataset: object) -> bool:
    """Say whether it is a ``datasets.Dataset`` that reads its rows as that class does."""
    # found by name, so that who does not use datasets never pays for its import
    kind: Any = type(dataset)
    for base in kind.__mro__:
        if (base.__module__, base.__name__) == ("datasets.arrow_dataset", "Dataset"):
            return kind.__getitem__ is base.__getitem__ and kind.__getitems__ is base.__getitems__
    return False


def _content(dataset: Any) -> str:
    for feature, path in _decoded(dataset.features, ()):
        if _names_files(dataset.data.table, path):
            raise UnknownIdentityError(
                f"the column {'.'.join(path)} of the evaluation set holds names of {type(feature).__name__} files, "
                "whose content may change"
            )
    rows = None if dataset._indices is None else dataset._indices.column(0).to_numpy()
    table = fingerprint_table(dataset.data.table, rows)
    return fingerprint_named({"features": repr(sorted(dataset.features.items())), "table": table})


def _decoded(feature: Any, path: tuple[str, ...]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield the features that are decoded when a row is read, such as images, and where they are."""
    if isinstance(feature, dict):
        for name, inner in feature.items():
            yield from _decoded(inner, (*path, name))
    elif isinstance(feature, (list, tuple)):
        for inner in feature:
            yield from _decoded(inner, path)
    elif hasattr(feature, "decode_example"):
        yield feature, path
    elif hasattr(feature, "feature"):
        yield from _decoded(feature.feature, path)


def _names_files(table: Any, path: tuple[str, ...]) -> bool:
    """Say whether a decoded column may hold a path without the bytes behind it; nested ones are not looked into."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = table.schema.field(path[0]).type
    if len(path) > 1 or not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
        return True
    return bool(pc.struct_field(table.column(path[0]), "bytes").null_count)
