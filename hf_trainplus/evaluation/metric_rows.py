"""What metrics found, with what every row adds to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]

MOST_ROW_BYTES = 1024
"""Largest statistics of one row that are kept for intervals and races, in bytes; wider ones are only summed."""


@dataclass(frozen=True)
class MetricColumns:
    """What metrics found over all ranks.

    Args:
        metrics: key -> value, as ``compute`` gives them.
        scores: primary key -> (n,) score of each row, for metrics that are means over rows.
        statistics: primary key -> (n, k) additive statistics of each row.
        index: (n,) positions of those rows.
    """

    metrics: dict[str, Any]
    scores: dict[str, Array]
    statistics: dict[str, Array]
    index: Array
