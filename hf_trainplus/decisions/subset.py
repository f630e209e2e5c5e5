"""Draw rows that stand for a whole dataset: ``representative_subset`` and the strategies behind it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.strategies.arrow_values import as_objects
from hf_trainplus.decisions.strategies.columns import DatasetColumns, is_stream
from hf_trainplus.decisions.strategies.difficulty import (
    DifficultyStrategy,
    expected_loss_deviation,
    reference_losses,
)
from hf_trainplus.decisions.strategies.diversity import DiversityStrategy
from hf_trainplus.decisions.strategies.protocol import SubsetStrategy
from hf_trainplus.decisions.strategies.random import RandomStrategy
from hf_trainplus.decisions.strategies.stratified import StratifiedStrategy, infer_label_column
from hf_trainplus.decisions.strategies.streams import stream_prefix, stream_sample
from hf_trainplus.decisions.strategies.subset_value import Subset
from hf_trainplus.results import ExampleResults

__all__ = [
    "DatasetColumns",
    "DifficultyStrategy",
    "DiversityStrategy",
    "RandomStrategy",
    "StratifiedStrategy",
    "Subset",
    "SubsetStrategy",
    "representative_subset",
    "stream_prefix",
    "stream_sample",
]

_STRATEGIES = ("stratified", "random", "difficulty", "diversity")
_STREAM_STRATEGIES = ("stratified", "random", "prefix")

ReferenceLoss = npt.ArrayLike | str | ExampleResults
Features = npt.ArrayLike | str | Sequence[str]


def representative_subset(
    dataset: object,
    size: int | float,
    *,
    strategy: str | SubsetStrategy = "stratified",
    label_column: str | int | None = None,
    allocation: str = "proportional",
    seed: int = 0,
    reference_loss: ReferenceLoss | None = None,
    features: Features | None = None,
    stream_rows: int | None = None,
) -> Subset:
    """Choose rows that stand for the whole dataset, for ``dataset.select(subset.indices)``.

    It does not make a small subset decide like the full set: the best of two checkpoints that differ by less than the
    interval's width is a guess on any subset. It reads the columns that the strategy needs and no other.

    Args:
        dataset: ``datasets.Dataset``, Arrow table, pandas or polars frame, mapping of columns, list of rows, any object
            with ``__len__`` and ``__getitem__``, or a stream (the rows then come back in ``subset.rows``).
        size: number of rows, 1 to the dataset's, or a fraction in (0, 1] of them, rounded, at least one row.
        strategy: ``"stratified"`` by label; ``"random"``; ``"difficulty"``, strata of a reference loss;
            ``"diversity"``, clusters as strata; ``"prefix"`` for streams; or an object with ``select``.
        label_column: name, ``"outer.inner"``, or position; None takes ``label`` or ``labels`` when it holds classes.
            Only ``"stratified"`` reads it.
        allocation: ``"proportional"``, ``"equal"``, or ``"neyman"`` (needs ``reference_loss``).
        seed: whole number >= 0; the same seed gives the same rows in every process and Python run.
        reference_loss: loss of each row under a reference checkpoint: values, a column, or the results of a full
            evaluation.
        features: for ``"diversity"``: (N, d) values, or names of columns.
        stream_rows: rows of a stream to read at most; for ``"prefix"`` the stream's stated length.

    Returns:
        Exactly the rows asked for, ascending, with weights that keep estimates unbiased under every allocation.

    Raises:
        ValueError: a size, strategy, allocation or column that is not there, or an argument that the strategy lacks.
        TypeError: an object that is no dataset, or labels that are none.

    Example:
        >>> rows = [{"label": name} for name in ["a"] * 70 + ["b"] * 30]
        >>> subset = representative_subset(rows, 0.1)
        >>> len(subset), int((subset.indices < 70).sum()), subset.method
        (10, 7, "stratified by 'label', 2 strata, proportional")
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"seed is {seed!r}; allowed are whole numbers >= 0.")
    if is_stream(dataset):
        _refuse_of_stream(allocation, reference_loss, features, stream_rows)
        return _of_stream(dataset, size, strategy, label_column, allocation, int(seed), stream_rows)
    if stream_rows is not None:
        raise ValueError("stream_rows was given and the dataset is no stream; leave it out.")
    columns = DatasetColumns(dataset)
    chosen = _strategy(strategy, columns, label_column, allocation, reference_loss, features)
    rows = _whole_size(size, len(columns))
    return _checked(chosen.select(columns, rows, seed=int(seed)), rows, columns, chosen)


def _strategy(
    strategy: str | SubsetStrategy,
    columns: DatasetColumns,
    label_column: str | int | None,
    allocation: str,
    reference_loss: ReferenceLoss | None,
    features: Features | None,
) -> SubsetStrategy:
    """Build the strategy that a name means."""
    if not isinstance(strategy, str):
        if isinstance(strategy, type) or not isinstance(strategy, SubsetStrategy):
            raise TypeError(f"strategy is {strategy!r}; allowed are {_named(_STRATEGIES)} or an object with select().")
        _refuse_beside_object(allocation, reference_loss, features)
        return strategy
    if strategy not in _STRATEGIES:
        raise ValueError(f"strategy is {strategy!r}; allowed are {_named(_STRATEGIES)} or an object with select().")
    if features is not None and strategy != "diversity":
        raise ValueError(f"features= was given and strategy is {strategy!r}; only 'diversity' takes features.")
    if strategy == "random":
        _refuse_strata(allocation, reference_loss)
        return RandomStrategy()
    if strategy == "difficulty":
        if reference_loss is None:
            raise ValueError(
                "strategy='difficulty' needs reference_loss=, each row's loss under a reference checkpoint."
            )
        return DifficultyStrategy(reference_loss, allocation=allocation)
    losses = None if reference_loss is None else reference_losses(reference_loss, columns)
    expected = None if losses is None else expected_loss_deviation(losses)
    if strategy == "diversity":
        return DiversityStrategy(features, allocation=allocation, expected_deviation=expected)
    return StratifiedStrategy(label_column, allocation, expected)


def _refuse_strata(allocation: str, reference_loss: ReferenceLoss | None = None) -> None:
    if allocation != "proportional" or reference_loss is not None:
        given = f"allocation={allocation!r}" if reference_loss is None else "reference_loss="
        raise ValueError(f"{given} was given and the strategy has no strata; leave it out.")


def _refuse_beside_object(allocation: str, reference_loss: ReferenceLoss | None, features: Features | None) -> None:
    """An object brings its own options; those of this call would be without effect."""
    given = {"allocation=": allocation != "proportional", "reference_loss=": reference_loss is not None}
    for name, is_given in (given | {"features=": features is not None}).items():
        if is_given:
            raise ValueError(f"{name} was given and strategy is an object; give it to the object itself.")


def _refuse_of_stream(
    allocation: str, reference_loss: ReferenceLoss | None, features: Features | None, stream_rows: int | None
) -> None:
    if allocation == "neyman":
        raise ValueError("allocation is 'neyman' and the dataset a stream; allowed are 'proportional', 'equal'.")
    if reference_loss is not None or features is not None:
        name = "features=" if reference_loss is None else "reference_loss="
        raise ValueError(f"{name} was given and the dataset is a stream, which is read once; leave it out.")
    if stream_rows is None:
        return
    if isinstance(stream_rows, bool) or not isinstance(stream_rows, (int, np.integer)) or stream_rows < 1:
        raise ValueError(f"stream_rows is {stream_rows!r}; allowed are whole numbers >= 1, or None.")


def _named(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _whole_size(size: int | float, rows: int) -> int:
    """Number of rows that a size means for a dataset of this many rows."""
    if not rows:
        raise ValueError("the dataset has no row, so no subset of it stands for anything; give one that has rows.")
    if isinstance(size, (float, np.floating)) and 0 < size <= 1:
        return max(1, round(float(size) * rows))
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not 1 <= size <= rows:
        raise ValueError(
            f"size is {size!r} and the dataset has {rows} rows; allowed are whole numbers from 1 to {rows} or a "
            "fraction above 0 and up to 1.0, e.g. size=0.1."
        )
    return int(size)


def _checked(subset: Subset, size: int, columns: DatasetColumns, strategy: SubsetStrategy) -> Subset:
    """Hold every strategy, also a user's, to its contract."""
    name = type(strategy).__name__
    if not isinstance(subset, Subset):
        raise TypeError(f"{name}.select() returned {type(subset).__name__}; return a Subset(indices, weights, strata).")
    if len(subset) != size or (len(subset) and int(subset.indices[-1]) >= len(columns)):
        raise ValueError(
            f"{name}.select() returned {len(subset)} rows, the last at {subset.indices[-1:].tolist()}; asked for were "
            f"exactly {size} rows of {len(columns)}."
        )
    if not subset.endless and not np.isclose(subset.weights.sum(), len(columns), rtol=1e-6):
        raise ValueError(
            f"{name}.select() returned weights that add up to {subset.weights.sum():.6g} and the dataset has "
            f"{len(columns)} rows; a weight is the rows that a row stands for, e.g. [{len(columns)} / {size}] * {size}."
        )
    return subset


def _of_stream(
    stream: Any,
    size: int | float,
    strategy: str | SubsetStrategy,
    label_column: str | int | None,
    allocation: str,
    seed: int,
    stream_rows: int | None,
) -> Subset:
    if strategy not in _STREAM_STRATEGIES:
        raise ValueError(
            f"strategy is {strategy!r} and the dataset a stream; allowed are {_named(_STREAM_STRATEGIES)}."
        )
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
        raise ValueError(f"size is {size!r} and a stream has no known length; allowed are whole numbers >= 1.")
    if strategy != "stratified":
        _refuse_strata(allocation)
    if strategy == "prefix":
        return stream_prefix(stream, int(size), stream_rows=stream_rows)
    rows = iter(stream)
    if strategy == "random":
        return stream_sample(rows, int(size), stream_rows=stream_rows, seed=seed)
    first = list(islice(rows, 1))
    name = _stream_label(first) if label_column is None else label_column
    whole = chain(first, rows)
    return stream_sample(whole, int(size), label_column=name, allocation=allocation, stream_rows=stream_rows, seed=seed)


def _stream_label(first: list[Any]) -> str | None:
    """Label column of a stream, judged by its first row; neither lists nor fractions are classes in one pass."""
    name = infer_label_column(DatasetColumns(first)) if first else None
    label = None if name is None else as_objects([first[0][name]])[0]
    return None if isinstance(label, (list, tuple)) or (isinstance(label, float) and label % 1 > 0) else name
