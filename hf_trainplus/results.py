"""Per-example results of one evaluation: the table that every estimate, decision, cache and comparison reads.

The module needs numpy only (pyarrow when a table is written), so that statistics are tested without a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

_SCORE, _STATISTIC, _GROUP = "score:", "statistic:", "group:"


@dataclass(frozen=True)
class ExampleResults:
    """One row an example: what the model got wrong there, and where the row stands in the dataset.

    It holds no logits and no predictions, and computes no interval (see ``hf_trainplus.decisions.estimate``).

    Args:
        index: (n,) position of the row in its dataset, each at most once.
        loss_sum: (n,) sum of the losses of the row's targets, in nats for a cross entropy; may be NaN or infinite.
        target_count: (n,) number of real targets in the row (tokens, labels), >= 0; 0 marks a fully masked row.
        scores: name -> (n,) per-example score, e.g. ``{"accuracy": 0/1}``.
        statistics: name -> (n, k) additive sufficient statistics of a corpus metric, e.g. BLEU's n-gram matches.
        groups: name -> (n,) group of the row, for slices and clusters.
        identity: fingerprint of weights, data, metric code and precision, or None when unknown.

    Raises:
        ValueError: columns of unequal length, an index that repeats, or a negative target count.

    Example:
        >>> results = ExampleResults([2, 0], [3.0, 1.0], [3, 1], scores={"accuracy": [1, 0]})
        >>> results.loss, len(results)
        (1.0, 2)
        >>> results.in_dataset_order().index.tolist()
        [0, 2]
    """

    index: Int64Array
    loss_sum: Float64Array
    target_count: Float64Array
    scores: Mapping[str, Float64Array] = field(default_factory=dict)
    statistics: Mapping[str, Float64Array] = field(default_factory=dict)
    groups: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    identity: str | None = None

    def __post_init__(self) -> None:
        columns = {"loss_sum": self.loss_sum, "target_count": self.target_count}
        for name, column in columns.items():
            object.__setattr__(self, name, np.asarray(column, dtype=np.float64))
        object.__setattr__(self, "index", np.asarray(self.index, dtype=np.int64))
        for name in ("scores", "statistics"):
            mapping = {key: np.asarray(value, dtype=np.float64) for key, value in getattr(self, name).items()}
            object.__setattr__(self, name, mapping)
        object.__setattr__(self, "groups", {key: np.asarray(value) for key, value in self.groups.items()})
        self._check()

    def _check(self) -> None:
        if self.index.ndim != 1:
            raise ValueError(f"index has shape {self.index.shape}; allowed is one dimension, one entry a row.")
        for name, column in self._named_columns():
            if len(column) != len(self.index):
                raise ValueError(
                    f"column {name!r} has {len(column)} rows and index has {len(self.index)}; give one value a row."
                )
        if len(np.unique(self.index)) != len(self.index):
            values, counts = np.unique(self.index, return_counts=True)
            raise ValueError(
                f"index {values[counts > 1][0]} occurs {counts.max()} times; each row counts once: drop duplicates "
                "before building ExampleResults."
            )
        if bool((self.target_count < 0).any()):
            raise ValueError(f"target_count has {self.target_count.min()}; allowed are values >= 0.")

    def _named_columns(self) -> list[tuple[str, npt.NDArray[Any]]]:
        named: list[tuple[str, npt.NDArray[Any]]] = [("loss_sum", self.loss_sum), ("target_count", self.target_count)]
        for mapping in (self.scores, self.statistics, self.groups):
            named.extend(mapping.items())
        return named

    def __len__(self) -> int:
        return len(self.index)

    @property
    def counted(self) -> npt.NDArray[np.bool_]:
        """(n,) True where the row has at least one target."""
        return self.target_count > 0

    @property
    def nonfinite_count(self) -> int:
        """Number of rows with targets whose loss is NaN or infinite."""
        return int((~np.isfinite(self.loss_sum) & self.counted).sum())

    @property
    def loss(self) -> float | None:
        """Token-exact loss: all losses summed, divided once by the number of targets; None without targets."""
        total = float(self.target_count.sum())
        if total == 0:
            return None
        return float(self.loss_sum[self.counted].sum()) / total

    def take(self, rows: npt.NDArray[Any]) -> ExampleResults:
        """Keep the rows named by position or by a mask, in that order."""
        return ExampleResults(
            self.index[rows],
            self.loss_sum[rows],
            self.target_count[rows],
            scores={key: value[rows] for key, value in self.scores.items()},
            statistics={key: value[rows] for key, value in self.statistics.items()},
            groups={key: value[rows] for key, value in self.groups.items()},
            identity=self.identity,
        )

    def in_dataset_order(self) -> ExampleResults:
        """Sort the rows by index."""
        return self.take(np.argsort(self.index, kind="stable"))

    @staticmethod
    def concatenate(parts: Sequence[ExampleResults]) -> ExampleResults:
        """Join tables with the same columns; the first table's identity is kept.

        Raises:
            ValueError: no table given, or the tables have different columns.
        """
        if not parts:
            raise ValueError("concatenate() was given no table; give at least one.")
        first = parts[0]
        for part in parts:
            if _column_names(part) != _column_names(first):
                raise ValueError(f"columns differ: {_column_names(first)} and {_column_names(part)}; give equal ones.")
        return ExampleResults(
            np.concatenate([part.index for part in parts]),
            np.concatenate([part.loss_sum for part in parts]),
            np.concatenate([part.target_count for part in parts]),
            scores={key: np.concatenate([part.scores[key] for part in parts]) for key in first.scores},
            statistics={key: np.concatenate([part.statistics[key] for part in parts]) for key in first.statistics},
            groups={key: np.concatenate([part.groups[key] for part in parts]) for key in first.groups},
            identity=first.identity,
        )

    def to_table(self) -> pa.Table:
        """Return an Arrow table; statistics become fixed-size lists, the identity goes to the schema's metadata."""
        import pyarrow as pa

        columns: dict[str, Any] = {"index": self.index, "loss_sum": self.loss_sum, "target_count": self.target_count}
        columns |= {_SCORE + key: value for key, value in self.scores.items()}
        columns |= {_GROUP + key: pa.array(value.tolist()) for key, value in self.groups.items()}
        for key, value in self.statistics.items():
            flat = pa.array(np.ascontiguousarray(value).reshape(-1))
            columns[_STATISTIC + key] = pa.FixedSizeListArray.from_arrays(flat, value.shape[1])
        table = pa.table(columns)
        return table.replace_schema_metadata({"identity": self.identity} if self.identity else None)

    @staticmethod
    def from_table(table: pa.Table) -> ExampleResults:
        """Read what ``to_table`` wrote."""
        data: dict[str, dict[str, Any]] = {_SCORE: {}, _STATISTIC: {}, _GROUP: {}}
        for name in table.column_names:
            for prefix, target in data.items():
                if name.startswith(prefix):
                    target[name[len(prefix) :]] = _numbers_of(table[name])
        identity = (table.schema.metadata or {}).get(b"identity")
        return ExampleResults(
            table["index"].to_numpy(),
            table["loss_sum"].to_numpy(),
            table["target_count"].to_numpy(),
            scores=data[_SCORE],
            statistics=data[_STATISTIC],
            groups=data[_GROUP],
            identity=identity.decode() if identity else None,
        )


def _numbers_of(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    import pyarrow as pa

    if pa.types.is_fixed_size_list(column.type):
        flat = column.combine_chunks().flatten()
        return _numbers_of(pa.chunked_array([flat])).reshape(len(column), column.type.list_size)
    if pa.types.is_primitive(column.type) and column.null_count == 0:
        return np.asarray(column.to_numpy())
    return np.asarray(column.to_pylist())  # texts as numpy keeps them, not as objects


def _column_names(results: ExampleResults) -> tuple[list[str], list[str], list[str]]:
    return sorted(results.scores), sorted(results.statistics), sorted(results.groups)
