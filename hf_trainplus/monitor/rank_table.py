"""One number a rank, boiled down to what a reader acts on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Spread:
    """Smallest, mean and largest value over ranks, and the rank that has the largest.

    Example:
        >>> spread = Spread.of([1.0, 4.0, 1.0])
        >>> spread.minimum, spread.mean, spread.maximum, spread.largest_rank
        (1.0, 2.0, 4.0, 1)
    """

    minimum: float
    mean: float
    maximum: float
    largest_rank: int

    @staticmethod
    def of(values: Sequence[float] | npt.NDArray[np.float64]) -> Spread:
        """Summarise one value a rank.

        Raises:
            ValueError: no value given.
        """
        column = np.asarray(values, dtype=np.float64)
        if column.size == 0:
            raise ValueError("Spread.of() was given no value; give one a rank.")
        return Spread(float(column.min()), float(column.mean()), float(column.max()), int(column.argmax()))


def spread_over_ranks(names: Sequence[str], rows: npt.ArrayLike) -> Mapping[str, Spread]:
    """Summarise each named column of a table with one row a rank.

    Args:
        names: (k,) names of the columns.
        rows: (world size, k) values; NaN marks a value that a rank did not measure.

    Returns:
        name -> spread; a column that any rank did not measure is left out.

    Raises:
        ValueError: the table has not one column a name.

    Example:
        >>> spread_over_ranks(["data_wait"], [[0.5], [1.5]])["data_wait"].largest_rank
        1
    """
    table = np.atleast_2d(np.asarray(rows, dtype=np.float64))
    if table.shape[1] != len(names):
        raise ValueError(f"rows has shape {table.shape} for {len(names)} names; give one column a name.")
    return {name: Spread.of(table[:, k]) for k, name in enumerate(names) if not np.isnan(table[:, k]).any()}
