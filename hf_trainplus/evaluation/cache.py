"""Per-example results on disk, under the identity of what produced them; one Parquet file an identity."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.identity import Digest, Identity, fingerprint_array, fingerprint_named
from hf_trainplus.results import ExampleResults, Int64Array

MOST_BYTES = 2**30
"""Size of a folder above which the files that were used longest ago are deleted, in bytes."""

_FORMAT = "trainplus evaluation cache 1"
_ENTRY, _CHECKSUM = b"trainplus", b"trainplus_checksum"


@dataclass(frozen=True)
class Summary:
    """What one evaluation found beside its rows.

    Args:
        has_loss: whether there was a loss at all.
        metrics: key -> number, text, None, or a mapping of these.
    """

    has_loss: bool
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CacheEntry:
    """What is known under one identity.

    Args:
        results: all rows known so far, in dataset order.
        summaries: what whole evaluations found, by the fingerprint of their rows.
    """

    results: ExampleResults
    summaries: Mapping[str, Summary] = field(default_factory=dict)

    def rows(self, ids: npt.ArrayLike) -> ExampleResults | None:
        """Return these rows in this order, or None when one of them is not known.

        Args:
            ids: (n,) positions in the dataset.
        """
        wanted = np.asarray(ids, dtype=np.int64)
        known = self.results.index
        if not len(known) or not len(wanted):
            return None
        places = np.searchsorted(known, wanted).clip(max=len(known) - 1)
        return self.results.take(places) if bool((known[places] == wanted).all()) else None

    def summary(self, ids: npt.ArrayLike) -> Summary | None:
        """Return what an evaluation of exactly these rows, in any order, found; None when there was none."""
        return self.summaries.get(_of_rows(ids))


class ResultCache:
    """Keeps per-example results of evaluations in a folder, and gives back only what is whole and unchanged.

    A file is written under another name and then renamed, so that a reader sees all of it or nothing. What is read must
    carry the identity that is asked for and a checksum of its own content; anything else counts as absent. It does not
    compute, does not talk to other processes, and locks nothing: of two that store under the same identity at the same
    time, the later one's rows stay.

    Args:
        folder: made when something is stored.
        warn: told of a file that is damaged.
        most_bytes: size of the folder above which the files used longest ago are deleted.

    Example:
        >>> import tempfile
        >>> cache = ResultCache(tempfile.mkdtemp())
        >>> identity = Identity("weights", "data", "metrics", "processing", "precision", "settings")
        >>> cache.store(identity, ExampleResults([0, 1], [0.5, 1.5], [1, 1]))
        >>> cache.store(identity, ExampleResults([2], [1.0], [1]))
        >>> cache.lookup(identity, [2, 0]).loss_sum.tolist(), cache.lookup(identity, [3])
        ([1.0, 0.5], None)
    """

    def __init__(
        self, folder: str, *, warn: Callable[[str], None] = lambda message: None, most_bytes: int = MOST_BYTES
    ) -> None:
        self.folder = folder
        self._warn = warn
        self._most_bytes = most_bytes

    def path(self, identity: Identity) -> str:
        """Return the file of an identity."""
        return os.path.join(self.folder, f"{identity.key}.parquet")

    def lookup(self, identity: Identity, ids: npt.ArrayLike) -> ExampleResults | None:
        """Return the results of these rows in this order, or None unless all of them are known.

        Args:
            identity: what they must have been produced by.
            ids: (n,) positions in the dataset.
        """
        entry = self.read(identity)
        return None if entry is None else entry.rows(ids)

    def read(self, identity: Identity) -> CacheEntry | None:
        """Return everything known under an identity, or None when there is nothing or it cannot be trusted."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.path(identity)
        if not os.path.isfile(path):
            return None
        try:
            # read before it is parsed, since a mapped file may change under the reader
            with open(path, "rb") as file:
                table = pq.read_table(pa.BufferReader(file.read()), use_threads=False)
            entry = _parsed(table, identity)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            self._warn(f"the evaluation cache's file {path} is damaged ({error}); the rows are evaluated again")
            return None
        with contextlib.suppress(OSError):  # in a folder that is only read, the time of use is not noted
            os.utime(path)
        return entry

    def store(self, identity: Identity, results: ExampleResults, summary: Summary | None = None) -> None:
        """Add rows to those known under an identity; a row that is known already is replaced.

        Args:
            identity: what produced them.
            results: any number of rows.
            summary: what the evaluation of exactly these rows found; None when it was no evaluation of its own.

        Raises:
            OSError: the folder cannot be written.
        """
        if not len(results):
            return
        before = self.read(identity)
        entry = _merged(before, replace(results, identity=identity.key).in_dataset_order())
        if summary is not None:
            entry = replace(entry, summaries={**entry.summaries, _of_rows(results.index): summary})
        self._write(identity, entry)
        self._make_room(self.path(identity))

    def _write(self, identity: Identity, entry: CacheEntry) -> None:
        import pyarrow.parquet as pq

        os.makedirs(self.folder, exist_ok=True)
        described = _described(identity, entry)
        metadata = {_ENTRY: described, _CHECKSUM: _checksum(described, entry.results)}
        table = entry.results.to_table()
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), **metadata})
        temporary = os.path.join(self.folder, f".{identity.key}-{uuid.uuid4().hex}.tmp")
        try:
            with open(temporary, "wb") as file:
                pq.write_table(table, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path(identity))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)
            raise

    def _make_room(self, newest: str) -> None:
        """Delete what was used longest ago; files of others, and the newest, are never touched."""
        found = []
        with os.scandir(self.folder) as entries:
            for item in entries:
                if item.name.endswith((".parquet", ".tmp")) and item.path != newest:
                    with contextlib.suppress(FileNotFoundError):  # another process may delete here too
                        facts = item.stat()
                        found.append((facts.st_mtime_ns, facts.st_size, item.path))
        excess = sum(size for _, size, _ in found) + os.path.getsize(newest) - self._most_bytes
        for _, size, path in sorted(found):
            if excess <= 0:
                return
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
            excess -= size


def _merged(before: CacheEntry | None, results: ExampleResults) -> CacheEntry:
    if before is None:
        return CacheEntry(results)
    others = before.results.take(~np.isin(before.results.index, results.index))
    try:
        joined = ExampleResults.concatenate([results, others]).in_dataset_order()
    except ValueError:  # kept with other columns, e.g. before groups were asked for
        return CacheEntry(results)
    return CacheEntry(joined, before.summaries)


def _of_rows(ids: npt.ArrayLike) -> str:
    return fingerprint_array(np.sort(np.asarray(ids, dtype=np.int64)))


def _described(identity: Identity, entry: CacheEntry) -> bytes:
    summaries = {rows: asdict(summary) for rows, summary in entry.summaries.items()}
    return json.dumps({"format": _FORMAT, "identity": asdict(identity), "summaries": summaries}).encode()


def _checksum(described: bytes, results: ExampleResults) -> bytes:
    columns: dict[str, Int64Array | npt.NDArray[np.float64]] = {
        "index": results.index,
        "loss_sum": results.loss_sum,
        "target_count": results.target_count,
    }
    columns |= {f"score:{name}": column for name, column in results.scores.items()}
    columns |= {f"statistic:{name}": column for name, column in results.statistics.items()}
    parts = {name: fingerprint_array(column) for name, column in columns.items()}
    digest = Digest()
    for name, group in results.groups.items():
        digest.add(name, repr(group.tolist()))
    digest.add(described, str(results.identity), fingerprint_named(parts))
    return digest.text().encode()


def _parsed(table: Any, identity: Identity) -> CacheEntry:
    """Return what a file holds.

    Raises:
        ValueError: it is not what was stored under this identity.
    """
    metadata = table.schema.metadata or {}
    described = metadata[_ENTRY]
    results = ExampleResults.from_table(table)
    if metadata[_CHECKSUM] != _checksum(described, results):
        raise ValueError("its checksum is wrong")
    content = json.loads(described)
    if content["format"] != _FORMAT or content["identity"] != asdict(identity) or results.identity != identity.key:
        raise ValueError("it belongs to something else")
    return CacheEntry(results, {rows: Summary(**summary) for rows, summary in content["summaries"].items()})
