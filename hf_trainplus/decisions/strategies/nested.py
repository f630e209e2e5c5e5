"""Fields inside fields, of rows and of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def child_of_row(row: Any, name: str | int) -> Any:
    """Read one field of a row: a key, a position, or an attribute.

    Raises:
        ValueError: the row has no such field.
    """
    if row is None:
        return None
    try:
        if isinstance(name, int) or isinstance(row, Mapping) or hasattr(row, "keys"):
            return row[name]
        return getattr(row, name)
    except (KeyError, IndexError, AttributeError, TypeError):
        pass
    if isinstance(name, str) and "." in name:
        outer, _, inner = name.partition(".")
        return child_of_row(child_of_row(row, outer), inner)
    kind = type(row).__name__
    if isinstance(row, (tuple, list)):
        raise ValueError(
            f"no field {name!r} in a row that is a {kind} of {len(row)}; name its position, e.g. label_column=1."
        )
    fields = ", ".join(map(repr, row.keys())) if hasattr(row, "keys") else kind
    raise ValueError(f"no field {name!r} in a row; it has {fields}.")


def child_of_column(column: Any, inner: str, name: str) -> Any:
    """Read a nested column from its outer one.

    Raises:
        ValueError: the outer column holds no records, or none with this field.
    """
    kind = getattr(column, "type", None)
    if kind is None:
        return [child_of_row(row, inner) for row in column]
    for part in inner.split("."):
        kind = column.type
        fields = [kind.field(position).name for position in range(kind.num_fields)]
        if not str(kind).startswith("struct") or part not in fields:
            raise ValueError(f"no column {name!r}: {part!r} is not a field of {kind}.")
        column = _struct_child(column, part)
    return column


def _struct_child(column: Any, part: str) -> Any:
    import pyarrow.compute as pc

    return pc.struct_field(column, part)
