"""A prefix of a design as a stratified sample: what every estimate over it shares."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from hf_trainplus.decisions.racing.design import Design
from hf_trainplus.decisions.racing.sums import total
from hf_trainplus.results import Float64Array, Int64Array

_PRIOR_FLOOR = 0.08
_PRIOR_ROWS = 3.0


class Sample:
    """The first ``depth`` rows of a design, with weights and variances of stratified sampling.

    Formulas: stratified means with finite-population correction (Cochran, Sampling Techniques, chapter 5).

    Args:
        design: the nested order.
        depth: rows of the prefix, 1..N.

    Example:
        >>> from hf_trainplus.decisions.racing.design import nested_design
        >>> from hf_trainplus.decisions.racing.strata import Strata
        >>> sample = Sample(nested_design(Strata(np.repeat([0, 1], 50), np.ones(2)), seed=0), 20)
        >>> sample.counts.tolist(), round(float(sample.weight.sum()), 9)
        ([10, 10], 1.0)
    """

    def __init__(self, design: Design, depth: int) -> None:
        self.design = design
        self.depth = depth
        self.rows: Int64Array = design.order[:depth]
        self.stratum: Int64Array = design.ordered_stratum[:depth]
        self.counts: Int64Array = design.counts(depth)
        self.share: Float64Array = design.sizes / design.size
        self.unread: Float64Array = 1.0 - self.counts / np.maximum(design.sizes, 1)
        self.each: Float64Array = self.share / np.maximum(self.counts, 1)
        self.prior: Float64Array = np.maximum(design.scale, _PRIOR_FLOOR) ** 2

    @cached_property
    def weight(self) -> Float64Array:
        """(n,) weights of the stratified mean; they sum to 1."""
        return self.each[self.stratum]

    @cached_property
    def squared_weight(self) -> Float64Array:
        """(n,) what each row's squared deviation adds to the variance."""
        return (self.each**2 * self.unread)[self.stratum]

    @cached_property
    def cubed_weight(self) -> Float64Array:
        """(n,) what each row's cubed deviation adds to the third cumulant."""
        return (self.each**3 * self.unread)[self.stratum]

    @cached_property
    def mean_squared_weight(self) -> float:
        """Mean of ``squared_weight``: what one more row of the usual weight adds."""
        return float(self.squared_weight.mean())

    @cached_property
    def mean_cubed_weight(self) -> float:
        """Mean of ``cubed_weight``."""
        return float(self.cubed_weight.mean())

    @cached_property
    def evenness(self) -> float:
        """Sum of squares of the normalised ``squared_weight``: one over the effective number of rows."""
        mass = float(self.squared_weight.sum())
        return total(self.squared_weight, self.squared_weight) / mass**2 if mass > 0 else 1.0

    def means(self, values: Float64Array) -> Float64Array:
        """(H,) means of (n,) values in each stratum."""
        sums = np.bincount(self.stratum, weights=values, minlength=len(self.counts))
        return np.asarray(sums / np.maximum(self.counts, 1), dtype=np.float64)

    def within(self, squares: Float64Array) -> Float64Array:
        """(H,) variance in each stratum from squared deviations, shrunk to the shape that the design expects.

        A stratum in which nothing differs among few rows read does not get variance 0: three rows' worth of the
        variance expected there is mixed in.
        """
        sums = np.bincount(self.stratum, weights=squares, minlength=len(self.counts))
        freedom = np.maximum(self.counts - 1.0, 0.0)
        level = sums.sum() / max(total(freedom, self.prior), 1e-300)
        extra = 0.0 if len(self.counts) == 1 else _PRIOR_ROWS
        return np.asarray((sums + extra * level * self.prior) / np.maximum(freedom + extra, 1.0), dtype=np.float64)

    def variance_at(self, values: Float64Array, gap: float, unit: float = 0.0) -> tuple[float, float]:
        """Variance that the mean of ``values`` would have ``gap`` below its estimate: its own, tilted there.

        Rare rows against the apparent winner that the sample missed make the estimate too sure and its variance too
        small together. To first order of exponential tilting the variance at a tie is ``V + |D| k3 / V``, with ``k3``
        the third cumulant of the estimate towards zero. A favourable skewness is not used. With a ``unit`` one more
        such row is taken to stand among those read, so that rows which all agree do not make the others certain.

        Args:
            values: (n,) values of the rows read.
            gap: how far the estimate is from the value that it is to be told from.
            unit: most that one row can move against the estimate; 0 where that has no bound.

        Returns:
            The variance, and the degrees of freedom of its estimate: n for normal rows, 2 k when k of many rows
            differ, from Var(s^2) = sigma^4 (kurtosis - 1) / n and Satterthwaite's 2 sigma^4 / df.
        """
        centred = values - self.means(values)[self.stratum]
        squares = centred**2
        parts = self.share * self.each * self.within(squares) * self.unread
        one_more = unit**2 * self.mean_squared_weight
        variance = float(parts.sum()) + one_more
        if variance <= 0:
            return 0.0, 1.0
        cubes = total(parts, self.each) + unit**2 * self.mean_cubed_weight
        return variance + abs(gap) * self._size(centred, squares, gap, unit) * cubes / variance, self._freedom(
            squares, one_more
        )

    def _size(self, centred: Float64Array, squares: Float64Array, gap: float, unit: float) -> float:
        """Typical size of the rows against the estimate, from the third and second moments; 0 when they favour it."""
        weight = self.mean_cubed_weight
        second = total(self.cubed_weight, squares) + unit**2 * weight
        third = -np.sign(gap) * total(self.cubed_weight * squares, centred) + unit**3 * weight
        return max(float(third) / second, 0.0) if second > 0 else float(np.abs(centred).max())

    def _freedom(self, squares: Float64Array, one_more: float) -> float:
        of_rows = self.squared_weight * squares
        mass = float(of_rows.sum()) + one_more
        if mass <= 0:
            return 1.0
        excess = (total(of_rows, of_rows) + one_more**2) / mass**2 - self.evenness
        return max(2.0 / excess, 1.0) if excess > 0 else float(self.depth)
