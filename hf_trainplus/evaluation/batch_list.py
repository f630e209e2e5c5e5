"""What an evaluation keeps of its rows, batch by batch, as ``eval_do_concat_batches=False`` wants it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.rows import RowCollector

Array = npt.NDArray[Any]


class BatchCollector:
    """Keeps every batch as it was padded, and returns the batches in the order in which they were run, on every rank.

    Outputs whose shape differs from batch to batch (masks of images, feature maps) cannot be one array without padding
    that would change them. It keeps everything in memory and orders nothing: whoever runs it runs the trainer's own
    batches. What the ranks run at the same time is one batch, shorter rows of one rank filled as ``RowCollector`` does.

    Example:
        >>> import numpy as np
        >>> collector = BatchCollector()
        >>> collector.add(np.array([0, 1]), (np.zeros((2, 3)), np.array([0, 1])))
        >>> collector.add(np.array([2]), (np.zeros((1, 5)), np.array([1])))
        >>> predictions, labels = collector.finish()
        >>> [batch.shape for batch in predictions], labels[1].tolist()
        ([(2, 3), (1, 5)], [1])
    """

    def __init__(self) -> None:
        self._batches: list[tuple[Array, Any]] = []

    def add(self, positions: Array, tree: Any, keep: Array | None = None) -> None:
        """Add one batch.

        Args:
            positions: (rows,) positions in the dataset of the rows that count.
            tree: a tuple of tensors, arrays or lists with one row an example, nested in tuples and dictionaries.
            keep: rows of the batch that count; None for all.
        """
        alone = RowCollector()
        alone.add(positions, tree, keep)
        # a filler alone is kept too: all ranks must have equally many batches
        self._batches.append((positions, alone.finish() if len(positions) else None))

    def finish(self, ranks: Ranks | None = None) -> Any:
        """Return, for each entry of the tuple, the list of its batches, None for one that is never there.

        None when nothing was added on any rank.
        """
        ranks = ranks or Ranks()
        found = []
        for k in range(max(ranks.gather(len(self._batches)))):
            mine = self._batches[k] if k < len(self._batches) else None
            parts = [part for part in ranks.gather(mine) if part is not None and len(part[0])]
            if parts:
                found.append(parts[0][1] if len(parts) == 1 else _joined(parts))
        if not found:
            return None
        return tuple(None if all(entry is None for entry in column) else column for column in transposed(found))

    def close(self) -> None:
        """Let go of an evaluation that was left."""
        self._batches.clear()


def join_batches(batches: Sequence[Any]) -> Any:
    """Return batches as one tree of arrays, shorter rows filled.

    Example:
        >>> join_batches([np.array([[1, 2]]), np.array([[3]])]).tolist()
        [[1, 2], [3, -100]]
    """
    starts = np.cumsum([0, *map(rows_in, batches)])
    places = [np.arange(first, last) for first, last in zip(starts, starts[1:], strict=False)]
    return _joined(list(zip(places, batches, strict=True)))


def rows_in(tree: Any) -> int:
    """Return the number of rows of a tree of arrays and lists.

    Example:
        >>> rows_in({"logits": (np.zeros((3, 2)),)})
        3
    """
    while isinstance(tree, (dict, tuple)):
        entries = [entry for entry in (tree.values() if isinstance(tree, dict) else tree) if entry is not None]
        tree = entries[0]
    return len(tree)


def transposed(batches: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return, for each entry of the batches, the list of its batches.

    Example:
        >>> transposed([("a1", "b1"), ("a2", "b2")])
        [['a1', 'a2'], ['b1', 'b2']]
    """
    return [list(entries) for entries in zip(*batches, strict=True)]


def _joined(parts: Sequence[tuple[Array, Any]]) -> Any:
    collector = RowCollector()
    for positions, tree in parts:
        collector.add(positions, tree)
    return collector.finish()
