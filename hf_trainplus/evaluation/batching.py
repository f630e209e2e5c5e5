"""Which rows go through the model together, on which rank, and in what order: pure planning over numpy arrays.

The module reads no row and knows no model. Time on any device grows with the padded number of tokens, so rows of like
length go together; the longest go first, so that a batch that does not fit in memory shows at once. Every rank works
out the same deal from the same arguments, and all ranks get the same number of batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class BatchPlan:
    """One rank's share of an evaluation: row positions in batches, in the order to be run.

    It holds positions only, no rows; every rank's plan has the same number of batches.

    Args:
        batches: int64 row positions, one array (1 or more rows) a batch.
        real: bool arrays of the same shapes; False marks a filler, which repeats a row so that all ranks run equally
            many batches, and whose result is dropped.

    Example:
        >>> plan = plan_batches([4, 5, 6], batch_size=2)
        >>> [batch.tolist() for batch in plan.batches], plan.row_count
        ([[4, 5], [6]], 3)
    """

    batches: tuple[Int64Array, ...]
    real: tuple[BoolArray, ...]

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def row_count(self) -> int:
        """Number of rows that count, fillers left out."""
        return int(sum(flags.sum() for flags in self.real))


def plan_batches(
    ids: npt.ArrayLike,
    lengths: npt.ArrayLike | None = None,
    *,
    batch_size: int,
    tokens_per_batch: int | None = None,
    max_rows: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    even_rows: bool = False,
) -> BatchPlan:
    """Deal rows into batches and batches to ranks; every row lands on exactly one rank, exactly once.

    It does not look at the rows, does not drop duplicates in ``ids``, and does not talk to other ranks: the plan is
    a function of its arguments. Without lengths rows keep their order and their plain batches (rank r takes the
    batches r, r + world_size, ...), whatever the token limit. With lengths rows are sorted, longest first, and batches
    are dealt so that the ranks' padded tokens stay level; a batch is halved rather than a filler added where that
    makes the counts equal.

    Args:
        ids: (n,) row positions in the dataset, n >= 0.
        lengths: (n,) length of each row of ``ids`` in tokens, >= 0, or None when unknown.
        batch_size: rows a batch, >= 1; with lengths and a token limit it is not used.
        tokens_per_batch: largest number of rows x longest row in a batch, >= 1; a longer row still gets its own batch.
        max_rows: largest number of rows a batch under a token limit, >= 1; None for no bound.
        rank: number of this process, in [0, world_size).
        world_size: number of processes, >= 1.
        even_rows: give all ranks equally many rows in each round, for trainers that gather rows of a batch over ranks:
            a rank without a batch of its own repeats another rank's, and a short last batch has a round of its own.

    Returns:
        This rank's batches; their number is the same on every rank, 0 when there are no rows.

    Raises:
        ValueError: a size below 1, a rank outside the world, ids or lengths that are not one-dimensional, lengths that
            do not match the ids or are negative.

    Example:
        >>> plan = plan_batches([0, 1, 2, 3], [5, 9, 5, 2], batch_size=2, tokens_per_batch=10)
        >>> [batch.tolist() for batch in plan.batches]
        [[1], [0, 2], [3]]
    """
    _check_sizes(batch_size, tokens_per_batch, max_rows, rank, world_size)
    positions, measured = _check_rows(ids, lengths)
    if not len(positions):
        return BatchPlan((), ())
    if measured is None:
        plain = np.split(positions, [*range(batch_size, len(positions), batch_size)])
        if even_rows:
            return _share_rounds(_plain_rounds(plain, world_size), rank)
        return _share_in_order(plain, rank, world_size)
    order = np.lexsort((positions, -measured))
    positions, measured = positions[order], measured[order]
    if even_rows:
        most = batch_size if tokens_per_batch is None else None
        return _share_rounds(_even_rounds(positions, measured, most or max_rows, tokens_per_batch, world_size), rank)
    if tokens_per_batch is None:
        bounds = [*range(0, len(positions), batch_size), len(positions)]
    else:
        bounds = _token_bounds(measured, tokens_per_batch, max_rows)
    bounds = _split_to_multiple(bounds, world_size)
    return _share_by_tokens(positions, measured, bounds, rank, world_size)


def _token_bounds(longest_first: Int64Array, tokens_per_batch: int, max_rows: int | None) -> list[int]:
    """Cut sorted rows greedily; the first row of a batch is its longest, so it alone sets how many fit."""
    bounds = [0]
    while bounds[-1] < len(longest_first):
        longest = max(1, int(longest_first[bounds[-1]]))
        rows = max(1, tokens_per_batch // longest)
        if max_rows is not None:
            rows = min(rows, max_rows)
        bounds.append(min(bounds[-1] + rows, len(longest_first)))
    return bounds


def _split_to_multiple(bounds: list[int], world_size: int) -> list[int]:
    """Halve the batches with most rows until the count divides by the ranks, or no batch has two rows."""
    bounds = list(bounds)
    while (len(bounds) - 1) % world_size:
        rows = np.diff(bounds)
        widest = int(rows.argmax())
        if rows[widest] < 2:
            break
        bounds.insert(widest + 1, bounds[widest] + int(rows[widest] + 1) // 2)
    return bounds


def _share_in_order(batches: Sequence[Int64Array], rank: int, world_size: int) -> BatchPlan:
    own = list(batches[rank::world_size])
    real = [np.ones(len(batch), dtype=np.bool_) for batch in own]
    rounds = -(-len(batches) // world_size)
    return _with_fillers(own, real, rounds, batches[-1][-1:])


def _share_by_tokens(
    positions: Int64Array, lengths: Int64Array, bounds: list[int], rank: int, world_size: int
) -> BatchPlan:
    """Deal neighbours in the sorted order, a round at a time, the dearest batch to the rank with the least work."""
    own: list[Int64Array] = []
    load = np.zeros(world_size, dtype=np.int64)
    starts, rows = np.asarray(bounds[:-1]), np.diff(bounds)
    cost = rows * np.maximum(lengths[starts], 1)
    for first in range(0, len(rows), world_size):
        dealt = np.arange(first, min(first + world_size, len(rows)))
        dearest_first = dealt[np.argsort(-cost[dealt], kind="stable")]
        takers = np.argsort(load, kind="stable")
        for batch, taker in zip(dearest_first, takers, strict=False):
            load[taker] += cost[batch]
            if taker == rank:
                own.append(positions[starts[batch] : starts[batch] + rows[batch]])
    real = [np.ones(len(batch), dtype=np.bool_) for batch in own]
    return _with_fillers(own, real, -(-len(rows) // world_size), positions[-1:])


def _plain_rounds(batches: Sequence[Int64Array], world_size: int) -> list[list[Int64Array]]:
    equal = [batch for batch in batches if len(batch) == len(batches[0])]
    rounds = [equal[first : first + world_size] for first in range(0, len(equal), world_size)]
    return rounds if len(equal) == len(batches) else [*rounds, list(batches[-1:])]


def _even_rounds(
    longest_first: Int64Array, lengths: Int64Array, most_rows: int | None, tokens: int | None, world_size: int
) -> list[list[Int64Array]]:
    """Cut sorted rows into rounds of one batch a rank, all with as many rows as fit beside the round's longest."""
    rounds, start = [], 0
    while start < len(longest_first):
        left = len(longest_first) - start
        rows = left if tokens is None else tokens // max(1, int(lengths[start]))
        rows = max(1, min(rows, most_rows or rows, left // world_size))
        taken = longest_first[start : start + rows * world_size]
        rounds.append(np.split(taken, [*range(rows, len(taken), rows)]))
        start += len(taken)
    return rounds


def _share_rounds(rounds: Sequence[Sequence[Int64Array]], rank: int) -> BatchPlan:
    """Take this rank's batch of each round; a rank that has none repeats the last one's rows."""
    own = [batches[min(rank, len(batches) - 1)].copy() for batches in rounds]
    real = [np.full(len(batch), rank < len(batches)) for batch, batches in zip(own, rounds, strict=True)]
    return BatchPlan(tuple(own), tuple(real))


def _with_fillers(own: list[Int64Array], real: list[BoolArray], count: int, row: Int64Array) -> BatchPlan:
    missing = count - len(own)
    fillers = [row.copy() for _ in range(missing)]
    unreal = [np.zeros(1, dtype=np.bool_) for _ in range(missing)]
    return BatchPlan((*own, *fillers), (*real, *unreal))


def _check_sizes(
    batch_size: int, tokens_per_batch: int | None, max_rows: int | None, rank: int, world_size: int
) -> None:
    sizes = {
        "batch_size": batch_size,
        "tokens_per_batch": tokens_per_batch,
        "max_rows": max_rows,
        "world_size": world_size,
    }
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} was given; allowed are whole numbers >= 1, e.g. {name}=8.")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank={rank} was given with world_size={world_size}; allowed are 0 to {world_size - 1}.")


def _check_rows(ids: npt.ArrayLike, lengths: npt.ArrayLike | None) -> tuple[Int64Array, Int64Array | None]:
    positions = np.asarray(ids, dtype=np.int64)
    if positions.ndim != 1:
        raise ValueError(f"ids have shape {positions.shape}; allowed is one dimension, one position a row.")
    if lengths is None:
        return positions, None
    measured = np.asarray(lengths, dtype=np.int64)
    if measured.shape != positions.shape:
        raise ValueError(
            f"lengths have shape {measured.shape} and ids {positions.shape}; give one length for each id: lengths[ids]."
        )
    if len(measured) and measured.min() < 0:
        raise ValueError(f"lengths contain {measured.min()}; allowed are values >= 0.")
    return positions, measured
