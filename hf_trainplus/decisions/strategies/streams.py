"""Subsets of streams, which are read once and in their own order."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from hf_trainplus.decisions.estimators.group_codes import is_missing
from hf_trainplus.decisions.strategies.arrow_values import as_objects
from hf_trainplus.decisions.strategies.drawing import plan_rows
from hf_trainplus.decisions.strategies.nested import child_of_row
from hf_trainplus.decisions.strategies.subset_value import Subset

_MOST_CLASSES = 10_000


def stream_prefix(stream: Iterable[Any], size: int, *, stream_rows: int | None = None) -> Subset:
    """Take the first rows of a stream.

    They stand for the stream only if it comes in random order: of a stream sorted by label or date they show one end.

    Args:
        stream: the rows.
        size: rows to take, >= 1.
        stream_rows: rows in the whole stream when known, >= size; None leaves the subset ``endless``.

    Returns:
        The subset with its ``rows``; it counts as the whole only when ``stream_rows`` equals ``size``.

    Raises:
        ValueError: the stream ends too early, or ``stream_rows`` is under ``size``.

    Example:
        >>> subset = stream_prefix(iter("abcdef"), 2)
        >>> subset.rows, subset.n_total, subset.design().exact
        (['a', 'b'], None, False)
    """
    if stream_rows is not None and stream_rows < size:
        raise ValueError(f"stream_rows={stream_rows} and size={size}; a subset cannot be larger than its stream.")
    rows = list(islice(iter(stream), size))
    if len(rows) < size:
        raise ValueError(f"the stream ended after {len(rows)} rows and size is {size}; ask for {len(rows)} at most.")
    weight = 1.0 if stream_rows is None else stream_rows / size
    method = "the first rows of a stream"
    strata = np.zeros(size, np.int64)
    return Subset(np.arange(size), np.full(size, weight), strata, method, rows, endless=stream_rows is None)


def stream_sample(
    stream: Iterable[Any],
    size: int,
    *,
    label_column: str | int | None = None,
    allocation: str = "proportional",
    stream_rows: int | None = None,
    seed: int = 0,
) -> Subset:
    """Draw rows from a stream in one pass, with one reservoir a class.

    It holds up to ``size`` rows of each class in memory, and it cannot cut a continuous target into bins.

    Args:
        stream: the rows; it is read to its end, or up to ``stream_rows``.
        size: rows to draw, >= 1.
        label_column: field that holds the class, or None for one reservoir.
        allocation: ``"proportional"`` or ``"equal"``.
        stream_rows: rows to read at most; an endless stream needs it.
        seed: seed of the draw.

    Returns:
        The subset of the rows read, with its ``rows``; ``indices`` are positions in the stream.

    Raises:
        ValueError: the stream has fewer rows than asked for.
        TypeError: labels that are lists, or more than 10,000 classes.

    Source:
        Vitter 1985, algorithm R, within each class.

    Example:
        >>> subset = stream_sample(({"label": i % 2} for i in range(100)), 10, label_column="label")
        >>> [row["label"] for row in subset.rows].count(1), float(subset.weights[0])
        (5, 10.0)
    """
    generator = np.random.default_rng(seed)
    reservoirs: dict[tuple[str, Any], _Reservoir] = {}
    for position, row in enumerate(islice(iter(stream), stream_rows)):
        key = _class_key(row, label_column)
        if key not in reservoirs:
            if len(reservoirs) == _MOST_CLASSES:
                raise TypeError(f"column {label_column!r} has over {_MOST_CLASSES} classes; use strategy='random'.")
            reservoirs[key] = _Reservoir(size, generator)
        reservoirs[key].offer(position, row)
    classes = [reservoirs[key] for key in sorted(reservoirs, key=repr)]
    sizes = np.array([reservoir.seen for reservoir in classes], np.int64)
    if int(sizes.sum()) < size:
        raise ValueError(f"the stream had {sizes.sum()} rows and size is {size}; ask for {sizes.sum()} at most.")
    plan = plan_rows(sizes, size, generator, allocation=allocation)
    kept = [
        entry for reservoir, count in zip(classes, plan.counts, strict=True) for entry in reservoir.draw(int(count))
    ]
    drawn = np.repeat(np.arange(len(classes)), plan.counts)
    order = np.argsort([position for position, _ in kept])
    method = "random rows of a stream" if label_column is None else f"stream stratified by {label_column!r}"
    return Subset(
        np.array([kept[at][0] for at in order], np.int64),
        plan.weights[drawn[order]],
        plan.strata[drawn[order]],
        method,
        [kept[at][1] for at in order],
    )


class _Reservoir:
    """A random sample of bounded size of the rows offered so far."""

    def __init__(self, size: int, generator: np.random.Generator) -> None:
        self._size, self._generator = size, generator
        self._kept: list[tuple[int, Any]] = []
        self.seen = 0

    def offer(self, position: int, row: Any) -> None:
        self.seen += 1
        if len(self._kept) < self._size:
            self._kept.append((position, row))
            return
        slot = int(self._generator.integers(self.seen))
        if slot < self._size:
            self._kept[slot] = (position, row)

    def draw(self, count: int) -> list[tuple[int, Any]]:
        """Return some of the kept rows; shuffled, since a slot's row depends on when it was filled."""
        return [self._kept[at] for at in self._generator.permutation(len(self._kept))[:count]]


def _class_key(row: Any, label_column: str | int | None) -> tuple[str, Any]:
    """Class of a row; 1, True and "1" are three classes, None and NaN one."""
    if label_column is None:
        return "", None
    label = as_objects([child_of_row(row, label_column)])[0]
    if isinstance(label, (list, dict)):
        raise TypeError(
            f"column {label_column!r} of the stream holds {type(label).__name__}s; allowed are plain classes."
        )
    return ("", None) if is_missing(label) else (type(label).__name__, label)
