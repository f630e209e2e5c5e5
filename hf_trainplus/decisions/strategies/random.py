"""Rows drawn with equal chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hf_trainplus.decisions.strategies.columns import DatasetColumns
from hf_trainplus.decisions.strategies.drawing import draw_strata
from hf_trainplus.decisions.strategies.subset_value import Subset


@dataclass(frozen=True)
class RandomStrategy:
    """Draws rows with equal chance; it reads no column.

    It keeps no share but by chance: with few rows a rare class can be missing.

    Example:
        >>> RandomStrategy().select(DatasetColumns(range(100)), 3, seed=0).weights.round(2).tolist()
        [33.33, 33.33, 33.33]
    """

    def select(self, columns: DatasetColumns, size: int, *, seed: int) -> Subset:
        """Draw ``size`` rows; the seed fixes them."""
        return draw_strata(np.zeros(len(columns), np.uint8), size, seed=seed, method="random")
