"""Read single columns of any kind of dataset, by what it can do rather than by its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from hf_trainplus.decisions.strategies.nested import child_of_column, child_of_row

Column = Any  # an Arrow array, a numpy array, a pandas series or a list: whatever the dataset stores


class _Reader(Protocol):
    names: list[str] | None

    def __len__(self) -> int: ...

    def read(self, name: str, rows: int) -> Column: ...


class DatasetColumns:
    """A dataset with a length, from which one column at a time is read.

    It reads a ``datasets.Dataset``, an Arrow table, a pandas frame, a frame with ``to_arrow`` (polars), a mapping of
    columns, a list of rows, and any object with ``__len__`` and ``__getitem__`` (its rows are read one by one). It
    never reads a column that nobody asked for, changes nothing, and does not read streams (see ``strategies.streams``).

    Args:
        dataset: the dataset.

    Raises:
        TypeError: a stream, a dictionary of datasets, or an object without rows.

    Example:
        >>> columns = DatasetColumns([{"label": "a", "meta": {"source": 1}}, {"label": "b", "meta": {"source": 2}}])
        >>> len(columns), columns.names, columns.read("meta.source")
        (2, ['label', 'meta'], [1, 2])
    """

    def __init__(self, dataset: object) -> None:
        self.dataset = dataset
        self._reader = _reader(dataset)

    def __len__(self) -> int:
        return len(self._reader)

    @property
    def names(self) -> list[str]:
        """Names of the columns; empty where rows have none (tuples)."""
        return list(self._reader.names or [])

    def read(self, name: str | int) -> Column:
        """Read one column.

        Args:
            name: column name, ``"outer.inner"`` for a nested one, or a position for rows that are tuples.

        Returns:
            The column as the dataset stores it, one value a row.

        Raises:
            ValueError: the column is not there.
        """
        return self.head(name, len(self))

    def head(self, name: str | int, rows: int) -> Column:
        """Read the first entries of one column, see ``read``."""
        rows = min(rows, len(self))
        if isinstance(name, int):
            return [child_of_row(self._row(position), name) for position in range(rows)]
        if self._reader.names is None or name in self._reader.names:
            return self._reader.read(name, rows)
        outer, _, inner = name.partition(".")
        if not inner or outer not in self._reader.names:
            raise ValueError(f"no column {name!r}; the dataset has {', '.join(map(repr, self.names)) or 'none'}.")
        return child_of_column(self._reader.read(outer, rows), inner, name)

    def _row(self, position: int) -> Any:
        if not isinstance(self._reader, _RowReader):
            raise ValueError(f"label_column is a position and the dataset has named columns: {self.names}; name one.")
        return self._reader.row(position)


def is_stream(dataset: object) -> bool:
    """Say whether the dataset can be read once only, in its own order."""
    named = any(kind.__name__ == "IterableDataset" for kind in type(dataset).__mro__)
    return named or (hasattr(dataset, "__iter__") and not hasattr(dataset, "__len__"))


def _reader(dataset: Any) -> _Reader:
    if is_stream(dataset):
        raise TypeError(f"{type(dataset).__name__} is a stream without random access; use stream_sample().")
    if isinstance(dataset, Mapping) and any(hasattr(value, "column_names") for value in dataset.values()):
        raise TypeError(f"a dictionary of datasets was given; choose one, e.g. dataset[{next(iter(dataset))!r}].")
    if hasattr(dataset, "select_columns") and hasattr(dataset, "with_format"):
        return _HuggingFaceReader(dataset)
    if hasattr(dataset, "iloc"):
        return _FrameReader(dataset)
    if hasattr(dataset, "to_arrow"):
        return _ArrowReader(dataset.to_arrow())
    if hasattr(dataset, "column_names") and hasattr(dataset, "column"):
        return _ArrowReader(dataset)
    if isinstance(dataset, Mapping):
        return _MappingReader(dataset)
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        return _RowReader(dataset)
    raise TypeError(
        f"{type(dataset).__name__} is no dataset; allowed are datasets.Dataset, Arrow tables, pandas frames, frames "
        "with to_arrow(), mappings of columns, lists of rows, and objects with __len__ and __getitem__."
    )


class _HuggingFaceReader:
    """A ``datasets.Dataset``: the column alone, as Arrow, so that no image is decoded and no transform runs."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.names: list[str] | None = list(dataset.column_names)

    def __len__(self) -> int:
        return len(self._dataset)

    def read(self, name: str, rows: int) -> Column:
        return self._dataset.select_columns([name]).with_format("arrow")[:rows].column(name)


class _FrameReader:
    """A pandas frame."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self._columns = {str(name): name for name in frame.columns}  # a frame's names may be numbers
        self.names: list[str] | None = list(self._columns)

    def __len__(self) -> int:
        return len(self._frame)

    def read(self, name: str, rows: int) -> Column:
        return self._frame[self._columns[name]][:rows]


class _ArrowReader:
    """An Arrow table or record batch."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.names: list[str] | None = list(table.column_names)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def read(self, name: str, rows: int) -> Column:
        return self._table.column(name)[:rows]


class _MappingReader:
    """A mapping of columns."""

    def __init__(self, mapping: Mapping[str, Any]) -> None:
        self._mapping = mapping
        self.names: list[str] | None = list(mapping)
        lengths = {name: len(column) for name, column in mapping.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of unequal length: {lengths}; give one value a row in each.")
        self._length = next(iter(lengths.values()), 0)

    def __len__(self) -> int:
        return self._length

    def read(self, name: str, rows: int) -> Column:
        return self._mapping[name][:rows]


class _RowReader:
    """A list of rows, or a map-style dataset of PyTorch's kind."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        first = dataset[0] if len(dataset) else {}
        self.names: list[str] | None = [str(key) for key in first] if hasattr(first, "keys") else None

    def __len__(self) -> int:
        return len(self._dataset)

    def read(self, name: str, rows: int) -> Column:
        return [child_of_row(self.row(position), name) for position in range(rows)]

    def row(self, position: int) -> Any:
        return self._dataset[position]
