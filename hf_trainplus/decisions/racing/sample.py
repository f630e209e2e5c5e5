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

    def variance(self, values: Float64Array) -> float:
        """Variance of the stratified mean of (n,) values over the rows that were not read."""
        within = self.within((values - self.means(values)[self.stratum]) ** 2)
        return float((self.share * self.each * within * self.unread).sum())

    def variance_at(self, values: Float64Array, gap: float) -> tuple[float, float]:
        """Variance that the mean of ``values`` would have ``gap`` below its estimate: its own, tilted there.

        Rare rows against the apparent winner that the sample missed make the estimate too sure and its variance too
        small together. To first order of exponential tilting the variance at a tie is ``V + |D| k3 / V``, with ``k3``
        the third cumulant of the estimate towards zero. A favourable skewness is not used.

        Args:
            values: (n,) values of the rows read.
            gap: how far the estimate is from the value that it is to be told from.

        Returns:
            The variance, and the degrees of freedom of its estimate: n for normal rows, 2 k when k of many rows
            differ, from Var(s^2) = sigma^4 (kurtosis - 1) / n and Satterthwaite's 2 sigma^4 / df.
        """
        centred = values - self.means(values)[self.stratum]
        squares = centred**2
        parts = self.share * self.each * self.within(squares) * self.unread
        variance = float(parts.sum())
        if variance <= 0:
            return 0.0, 1.0
        of_rows = self.squared_weight * squares
        mass = float(of_rows.sum())
        excess = total(of_rows, of_rows) / mass**2 - self.evenness if mass > 0 else 2.0
        freedom = max(2.0 / excess, 1.0) if excess > 0 else float(self.depth)
        scale = total(self.cubed_weight, squares)
        if scale > 0:
            size = -np.sign(gap) * total(self.cubed_weight * squares, centred) / scale
        else:
            size = float(np.abs(centred).max())
        return variance + abs(gap) * max(size, 0.0) * total(parts, self.each) / variance, freedom
