"""The one method of a subset strategy."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from hf_trainplus.decisions.strategies.columns import DatasetColumns
from hf_trainplus.decisions.strategies.subset_value import Subset


@runtime_checkable
class SubsetStrategy(Protocol):
    """Chooses the rows that stand for a dataset; write a class with this method to bring your own.

    A strategy does not evaluate anything. Intervals stay valid only where every row had a known chance of being drawn
    and ``weights`` states it: rows chosen by hand (hardest, most central) give a number that no interval can mend.

    Example:
        >>> class EveryOther:
        ...     def select(self, columns, size, *, seed):
        ...         return Subset(range(0, 2 * size, 2), [len(columns) / size] * size, [0] * size, "every other row")
        >>> isinstance(EveryOther(), SubsetStrategy)
        True
    """

    def select(self, columns: DatasetColumns, size: int, *, seed: int) -> Subset:
        """Choose rows.

        Args:
            columns: the dataset; it reads one column at a time, on request.
            size: number of rows to choose, 1 to ``len(columns)``.
            seed: the same seed gives the same rows in every process and Python run.

        Returns:
            Exactly ``size`` distinct rows with their weights and strata.
        """
        ...
