"""How the rows at hand were drawn from the full set, and the variance that this leaves in an estimate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.estimators.group_codes import cluster_codes
from hf_trainplus.results import Float64Array, Int64Array

_ROUNDING = 1e-9


@dataclass(frozen=True)
class SampleDesign:
    """The weight, stratum and cluster of every row of a sample.

    It assumes that the rows of a stratum were drawn at random without replacement; it cannot see that they were not.

    Args:
        weights: (n,) rows of the full set that each row stands for, > 0; a stratum's weights add up to its size.
        strata: (n,) stratum of each row, any integers.
        clusters: (n,) cluster of each row (document, conversation), any values, or None for independent rows; a row
            whose cluster is missing (None, NaN) belongs with no other.
        clusters_total: number of clusters in the full set when whole clusters were drawn, None when rows were drawn.
        endless: True when the set has no known end (a stream); the weights are then relative.
        balance: (n, q) numbers whose mean over the full set is 0 and whose mean over the sample the draw held near 0
            (label flags less the labels' shares); None where it balanced nothing but the strata.

    Raises:
        ValueError: columns of unequal length, weights that are not positive numbers, or more clusters than the total.

    Example:
        >>> SampleDesign.simple(50, 200).n_total, SampleDesign.simple(50, 200).exact
        (200, False)
    """

    weights: Float64Array
    strata: Int64Array
    clusters: npt.NDArray[Any] | None = None
    clusters_total: int | None = None
    endless: bool = False
    balance: Float64Array | None = None
    codes: Int64Array = field(init=False, repr=False)
    counts: Int64Array = field(init=False, repr=False)
    sizes: Float64Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights, dtype=np.float64)
        strata = np.asarray(self.strata, dtype=np.int64)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "strata", strata)
        if weights.ndim != 1 or weights.shape != strata.shape:
            raise ValueError(f"weights {weights.shape} and strata {strata.shape}: allowed is one value a row in each.")
        if not bool((np.isfinite(weights) & (weights > 0)).all()):
            raise ValueError("weights hold values that are not positive numbers; a row stands for at least itself.")
        codes, counts = _codes_and_counts(strata)
        object.__setattr__(self, "codes", codes)
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "sizes", np.bincount(codes, weights=weights, minlength=len(counts)))
        if self.clusters is not None:
            self._check_clusters()
        if self.balance is not None:
            self._check_balance()

    def _check_balance(self) -> None:
        balance = np.asarray(self.balance, dtype=np.float64)
        if balance.ndim != 2 or len(balance) != len(self.weights):
            raise ValueError(f"balance {balance.shape} and weights {self.weights.shape}: give one line a row.")
        object.__setattr__(self, "balance", balance)

    def _check_clusters(self) -> None:
        codes = cluster_codes(cast("npt.NDArray[Any]", self.clusters))
        if codes.shape != self.weights.shape:
            raise ValueError(f"clusters {codes.shape} and weights {self.weights.shape}: give one cluster a row.")
        found = int(codes.max()) + 1 if len(codes) else 0
        if self.clusters_total is not None and found > self.clusters_total:
            raise ValueError(
                f"{found} clusters found, clusters_total={self.clusters_total}; give the full set's number."
            )
        object.__setattr__(self, "clusters", codes)

    @staticmethod
    def simple(n: int, n_total: int | None = None, *, clusters: npt.ArrayLike | None = None) -> SampleDesign:
        """Describe n rows drawn at random from n_total, or the full set when n_total is None.

        Raises:
            ValueError: n_total under n.
        """
        total = n if n_total is None else n_total
        if total < n:
            raise ValueError(f"n_total={total} and {n} rows were given; n_total is the size of the full set, >= {n}.")
        weights = np.full(n, total / n if n else 1.0)
        return SampleDesign(weights, np.zeros(n, np.int64), None if clusters is None else np.asarray(clusters))

    @property
    def n(self) -> int:
        """Rows in the sample."""
        return len(self.weights)

    @property
    def n_total(self) -> int | None:
        """Rows in the full set; None when it has no known end."""
        return None if self.endless else round(float(self.weights.sum()))

    @property
    def unseen(self) -> Float64Array:
        """(H,) share of each stratum's rows that are not in the sample: the finite-population correction."""
        if self.endless:
            return np.ones(len(self.counts))
        return np.asarray(np.clip(1 - self.counts / self.sizes, 0.0, 1.0), dtype=np.float64)

    @property
    def exact(self) -> bool:
        """True when the sample is the full set: every row stands for itself alone."""
        return not self.endless and bool((self.weights <= 1 + _ROUNDING).all())

    def take(self, rows: npt.NDArray[Any]) -> SampleDesign:
        """Return the design of some of the rows, for a slice of the set; its size is then an estimate.

        What the draw balanced over the set it did not balance within a slice.

        Args:
            rows: positions or a mask.
        """
        clusters = None if self.clusters is None else self.clusters[rows]
        return SampleDesign(self.weights[rows], self.strata[rows], clusters, self.clusters_total, self.endless)

    @property
    def effective_n(self) -> float:
        """Kish's effective number of rows, (sum w)^2 / sum w^2: what unequal weights leave of n."""
        return float(self.weights.sum()) ** 2 / float((self.weights**2).sum()) if self.n else 0.0

    def mean(self, values: npt.ArrayLike) -> float:
        """Weighted mean: unbiased for the mean of the full set, whatever the allocation."""
        return float(self.weights @ np.asarray(values, dtype=np.float64) / self.weights.sum())


def _codes_and_counts(strata: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Strata as 0 to H - 1 with their rows; the common case of one stratum needs no sort."""
    if len(strata) and bool((strata == strata[0]).all()):
        return np.zeros(len(strata), np.int64), np.array([len(strata)], np.int64)
    _, codes, counts = np.unique(strata, return_inverse=True, return_counts=True)
    return codes.astype(np.int64), counts.astype(np.int64)
