"""Fingerprints: what produced a result, as short texts that differ when the content differs.

Pure functions over bytes, arrays, plain Python values and Arrow tables. They know no model, no dataset class and no
file. The hash is xxHash's XXH3 of 128 bits, which reads as fast as memory does, so that content can be read again in
place of being trusted. Two contents that differ share a fingerprint with a chance of about 2**-128. It is no protection
against somebody who wants two to be equal.
"""

from __future__ import annotations

import io
import marshal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xxhash

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, type(...)})
"""Types whose values are written out by ``marshal`` exactly, and that refer to nothing else."""

_TABLE_PIECE_BYTES = 2**26
_MARSHAL_VERSION = 2  # later versions write an object that is met again as a reference, which depends on identity


class UnknownIdentityError(TypeError):
    """Raised where it cannot be known what something contains, so that nothing may be reused in its place.

    The text is the reason, without a full stop, e.g. ``the function 'f' calls open()``.
    """


@dataclass(frozen=True)
class Identity:
    """What the rows of an evaluation depend on, one fingerprint a kind of thing.

    It does not say how rows were batched: where a row's result depends on its batch, no identity describes it.

    Args:
        weights: values of all parameters and buffers, and what is computed with them.
        data: content of the evaluation set.
        metrics: code and options of the metrics and of what prepares their input.
        processing: collator and tokenizer.
        precision: number formats, device and versions of the numerical libraries.
        settings: other options that change a row's result, e.g. label smoothing.

    Example:
        >>> one = Identity(weights="w1", data="d", metrics="m", processing="p", precision="fp32", settings="s")
        >>> other = Identity(weights="w2", data="d", metrics="m", processing="p", precision="fp32", settings="s")
        >>> len(one.key), one.key == other.key
        (32, False)
    """

    weights: str
    data: str
    metrics: str
    processing: str
    precision: str
    settings: str

    @property
    def key(self) -> str:
        """The identity as one text of 32 hexadecimal digits, fit for a file's name."""
        return fingerprint_named(asdict(self))


class Digest:
    """A fingerprint in the making: takes one piece after another, and keeps where each of them ended.

    Example:
        >>> one, other = Digest(), Digest()
        >>> one.add("ab", "c")
        >>> other.add("a", "bc")
        >>> one.text() == other.text()
        False
    """

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()

    def add(self, *pieces: str | Buffer) -> None:
        """Take in texts, bytes or contiguous arrays of bytes."""
        for piece in pieces:
            data = memoryview(piece.encode() if isinstance(piece, str) else piece)
            self._hash.update(data.nbytes.to_bytes(8, "little"))
            self._hash.update(data)

    def text(self) -> str:
        """Return 32 hexadecimal digits."""
        return str(self._hash.hexdigest())


def fingerprint_named(parts: Mapping[str, str]) -> str:
    """Combine fingerprints under names into one, whatever the order of the names.

    Example:
        >>> fingerprint_named({"a": "1", "b": "2"}) == fingerprint_named({"b": "2", "a": "1"})
        True
        >>> fingerprint_named({"a": "1", "b": "2"}) == fingerprint_named({"a": "2", "b": "1"})
        False
    """
    digest = Digest()
    for name in sorted(parts):
        digest.add(name, parts[name])
    return digest.text()


def fingerprint_array(array: npt.NDArray[Any]) -> str:
    """Fingerprint an array: type, shape and every byte.

    Raises:
        UnknownIdentityError: an array of Python objects, whose bytes are addresses.

    Example:
        >>> fingerprint_array(np.zeros(2, np.int64)) == fingerprint_array(np.zeros(2, np.float64))
        False
    """
    if array.dtype.hasobject:
        raise UnknownIdentityError(f"an array of dtype {array.dtype} holds Python objects")
    digest = Digest()
    digest.add(array.dtype.str, str(array.dtype.names), str(array.shape))
    digest.add(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.text()


def plain_bytes(value: Any) -> bytes | None:
    """Write out a plain value, or a list, tuple or dict of plain values; None for anything else.

    It looks one level deep, at the speed of C, and does not follow subclasses: a ``numpy.float64`` is no ``float``.

    Example:
        >>> plain_bytes([1, 2]) == plain_bytes([1, 2.0]), plain_bytes([[1]]) is None
        (False, True)
    """
    kind = type(value)
    if kind in (list, tuple):
        inner = set(map(type, value))
    elif kind is dict:
        inner = {*map(type, value), *map(type, value.values())}
    else:
        inner = {kind}
    return marshal.dumps(value, _MARSHAL_VERSION) if inner <= PLAIN else None


def fingerprint_table(table: pa.Table, rows: npt.NDArray[np.int64] | None = None) -> str:
    """Fingerprint the content of an Arrow table: names, types and values of its columns.

    How it is cut into chunks does not count. It is read once and in pieces, so that a table on disk never lies in
    memory whole.

    Args:
        table: any columns; metadata of its schema does not count.
        rows: (n,) positions of the rows that count, in order; None for all. Most of a table is read whole, a smaller
            selection row by row, so that the same rows may have two fingerprints.

    Example:
        >>> import pyarrow as pa
        >>> one, other = pa.table({"x": [1, 2, 3]}), pa.table({"x": [1, 2, 4]})
        >>> fingerprint_table(one) == fingerprint_table(other)
        False
        >>> fingerprint_table(one.slice(0, 2)) == fingerprint_table(other.slice(0, 2))
        True
    """
    import pyarrow as pa

    table = table.replace_schema_metadata(None)
    if rows is not None and 2 * len(rows) >= table.num_rows:
        return fingerprint_named({"table": fingerprint_table(table), "rows": fingerprint_array(rows)})
    count = table.num_rows if rows is None else len(rows)
    row_bytes = max(1, table.nbytes // max(1, table.num_rows))
    step = max(1, _TABLE_PIECE_BYTES // row_bytes)
    sink = _HashingFile()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), table.schema) as writer:
        for start in range(0, count, step):
            chosen = table.slice(start, step) if rows is None else table.take(pa.array(rows[start : start + step]))
            # a slice is written with bytes of the rows behind it; joined to nothing, it is copied and they are gone
            writer.write_table(pa.concat_tables([chosen, chosen.slice(0, 0)]).combine_chunks())
    return sink.digest.text()


class _HashingFile(io.RawIOBase):
    """A file that keeps nothing of what is written to it but the fingerprint."""

    def __init__(self) -> None:
        self.digest = Digest()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.add(data)
        return memoryview(data).nbytes
