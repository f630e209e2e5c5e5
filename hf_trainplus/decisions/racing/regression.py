"""Regression of a difference on columns that are known for every row."""

from __future__ import annotations

import numpy as np

from hf_trainplus.decisions.racing.sample import Sample
from hf_trainplus.decisions.racing.sums import combine, products, total, totals, transform
from hf_trainplus.results import Float64Array

_RIDGE = 1e-6
_BETWEEN = 0.25


class Regression:
    """All that an adjustment over one sample needs of the covariates; it serves every pair compared there.

    Slopes are fitted inside strata and, with less weight, between them: where the rows read of a stratum all look
    alike, what the other strata show is the only guide to those that were not read. Residuals carry the calibration
    weights (g-weights) and are enlarged by their leverage, so that an extrapolation to rows unlike those read shows as
    a large standard error instead of a confident wrong value (Sarndal, Swensson and Wretman, Model Assisted Survey
    Sampling, chapter 6).

    Args:
        sample: the rows read.
        x: (n, p) covariates of these rows.
        x_means: (p,) their means over all rows.
    """

    def __init__(self, sample: Sample, x: Float64Array, x_means: Float64Array) -> None:
        self.sample = sample
        self.width = x.shape[1]
        freedom = sample.counts * (sample.counts - 1.0)
        per_stratum = sample.share**2 * sample.unread / np.maximum(freedom, 1.0)
        self._per_row = per_stratum[sample.stratum]
        self._total = max(float(self._per_row.sum()), 1e-300)
        columns = [self._split(column) for column in x.T]
        spread = np.sqrt([total(self._per_row, fitted**2) for _, fitted in columns])
        usable = np.flatnonzero(spread > _RIDGE * max(float(spread.max(initial=0.0)), 1e-300))
        scale = spread[usable]
        self._inside = np.column_stack([columns[i][0] for i in usable]) / scale if len(usable) else np.empty((0, 0))
        if not len(usable):
            return
        z = np.column_stack([columns[i][1] for i in usable]) / scale
        self._gap = (x_means - totals(sample.weight, x))[usable] / scale
        weighted = z * self._per_row[:, None]
        inverse = np.linalg.inv(products(weighted, z) + _RIDGE * np.eye(len(usable)))
        self._influence = transform(weighted, np.asarray(inverse, dtype=np.float64))
        leverage = np.minimum(np.einsum("ij,ij->i", self._influence, z), 0.9)
        self._factor = (1.0 + combine(self._influence, self._gap) / sample.weight) / (1.0 - leverage)

    def adjust(self, values: Float64Array) -> tuple[float, Float64Array]:
        """Return the shift of the stratified mean of (n,) values, and the residuals whose spread is its spread."""
        if not self._inside.size:
            return 0.0, values
        inside, fitted = self._split(values)
        slope = totals(fitted, self._influence)
        return total(self._gap, slope), self._factor * (inside - combine(self._inside, slope))

    def _split(self, values: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Deviations from the stratum's mean, and the same plus the damped deviations of the means from each other."""
        means = self.sample.means(values)[self.sample.stratum]
        centre = total(self._per_row, means) / self._total
        inside = values - means
        return inside, inside + np.sqrt(_BETWEEN) * (means - centre)
