"""The rows that stand for a whole dataset, with their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.results import Float64Array, Int64Array


@dataclass(frozen=True)
class Subset:
    """Rows of a dataset, for ``dataset.select(subset.indices)``, and what each stands for.

    It holds no data, unless it was drawn from a stream, which cannot be read again.

    Args:
        indices: (n,) positions in the dataset, ascending, each once.
        weights: (n,) rows of the dataset that each row stands for; they add up to the dataset's number of rows.
        strata: (n,) stratum in which the row was drawn; pooled rare classes are one stratum.
        method: how the rows were drawn, in words for a log.
        rows: the rows themselves when they come from a stream, else None.
        endless: True for the start of a stream of unknown length; the weights are then relative.
        clusters: (n,) cluster with which the row was drawn, when whole clusters were drawn, else None.
        clusters_total: clusters in the dataset, when whole clusters were drawn.
        balance: (n, q) numbers whose means the draw held near the dataset's, which are 0, else None.

    Raises:
        ValueError: columns of unequal length, indices that do not ascend, or weights that are not positive.

    Example:
        >>> subset = Subset([1, 4], [2.0, 3.0], [0, 1])
        >>> len(subset), subset.n_total, subset.design().mean([0.0, 1.0])
        (2, 5, 0.6)
    """

    indices: Int64Array
    weights: Float64Array
    strata: Int64Array
    method: str = ""
    rows: Sequence[Any] | None = None
    endless: bool = False
    clusters: Int64Array | None = None
    clusters_total: int | None = None
    balance: Float64Array | None = None

    def __post_init__(self) -> None:
        for name, kind in (("indices", np.int64), ("weights", np.float64), ("strata", np.int64)):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=kind))
        if not self.indices.shape == self.weights.shape == self.strata.shape or self.indices.ndim != 1:
            shapes = f"indices {self.indices.shape}, weights {self.weights.shape}, strata {self.strata.shape}"
            raise ValueError(f"{shapes}: allowed is one value a row in each.")
        if len(self.indices) and (self.indices[0] < 0 or bool((np.diff(self.indices) <= 0).any())):
            raise ValueError("indices must be >= 0 and ascend, each row once; sort them and drop repeats.")
        if not bool((np.isfinite(self.weights) & (self.weights > 0)).all()):
            raise ValueError("weights hold values that are not positive numbers; a row stands for at least itself.")

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def n_total(self) -> int | None:
        """Rows of the dataset that the subset stands for; None when it has no known end."""
        return None if self.endless else round(float(self.weights.sum()))

    def design(self, *, clusters: npt.ArrayLike | None = None) -> SampleDesign:
        """Return the design for the rows in the order of ``indices``, for any estimator of ``decisions.estimate``.

        Args:
            clusters: (n,) cluster of each row, or None; where whole clusters were drawn, these count.
        """
        return self._design(np.arange(len(self)), clusters)

    def design_of(self, index: Int64Array, *, clusters: npt.ArrayLike | None = None) -> SampleDesign:
        """Return the design for results that came in another order.

        Args:
            index: (n,) dataset position of each result; the subset's rows, each once, in any order.
            clusters: (n,) cluster of each result, or None.

        Raises:
            ValueError: rows that are missing or were not drawn, which would bias every estimate.
        """
        order = np.argsort(index, kind="stable")
        if not np.array_equal(np.asarray(index)[order], self.indices):
            missing = np.setdiff1d(self.indices, index)
            foreign = np.setdiff1d(index, self.indices)
            raise ValueError(
                f"results and subset differ: {len(missing)} of the subset's {len(self)} rows are missing (first "
                f"{missing[:3].tolist()}), {len(foreign)} rows were not drawn (first {foreign[:3].tolist()}); evaluate "
                "dataset.select(subset.indices) and give its results."
            )
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return self._design(back, clusters)

    def _design(self, rows: Int64Array, clusters: npt.ArrayLike | None) -> SampleDesign:
        of_rows = None if clusters is None else np.asarray(clusters)
        if self.clusters is not None:
            of_rows = np.asarray(self.clusters)[rows]
        balance = None if self.balance is None else np.asarray(self.balance)[rows]
        return SampleDesign(self.weights[rows], self.strata[rows], of_rows, self.clusters_total, self.endless, balance)
