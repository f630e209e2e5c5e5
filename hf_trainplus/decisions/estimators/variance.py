"""Variance of a linearized estimate: every estimator reduces to the weighted mean of one influence value a row."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hf_trainplus.decisions.estimators.clusters import drawn_clusters_error, population_clusters_error
from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.sampling_error import SamplingError
from hf_trainplus.decisions.estimators.strata import stratified_error
from hf_trainplus.results import Float64Array


@dataclass(frozen=True)
class Variance:
    """How far an estimate may be off, for the set and for the population behind it.

    Args:
        of_set: as an estimate of the full set's value; variance 0 when exact, NaN when it cannot be known (one row).
        of_population: as an estimate of the population's value; variance NaN when it cannot be known.
    """

    of_set: SamplingError
    of_population: SamplingError

    def symmetric(self) -> Variance:
        """Return the same variances with the skewness left alone."""
        return Variance(self.of_set.symmetric(), self.of_population.symmetric())


def linearized_variance(
    influence: Float64Array, design: SampleDesign, *, spread: Float64Array | None = None, pull: float = 0.0
) -> Variance:
    """Variance of ``sum(w * influence) / sum(w)``, with the finite-population correction in every stratum.

    It does not know of dependence between rows beyond the design's clusters.

    Args:
        influence: (n,) influence of each row on the estimate, with weighted mean 0; for a mean, value minus mean.
        design: how the rows were drawn.
        spread: (n,) standard deviation expected in the row's stratum, >= 0, known before the draw; a stratum's variance
            is then shrunk toward this shape, which keeps strata where nothing was seen to vary from counting as
            certain. None takes each stratum's own variance.
        pull: rows, >= 0, as if by which each stratum's variance is pulled toward the overall one; for right or wrong,
            of which a small stratum often shows one only. Without effect where ``spread`` is given.

    Returns:
        The variances, with their degrees of freedom and skewness.

    Source:
        Cochran, Sampling Techniques, 5.6 (strata); the population's variance adds S^2 / N, clustered where rows belong
        together (Miller 2024, arXiv 2411.00640).

    Example:
        >>> import numpy as np
        >>> v = linearized_variance(np.array([-1.0, 1.0, -1.0, 1.0]), SampleDesign.simple(4, 8))
        >>> round(v.of_set.variance, 4), round(v.of_population.variance, 4)
        (0.1667, 0.3333)
    """
    if design.n < 2:
        return Variance(SamplingError.none() if design.exact else SamplingError.unknown(), SamplingError.unknown())
    if design.clusters is not None and design.clusters_total is not None:
        return Variance(*drawn_clusters_error(influence, design, design.clusters, design.clusters_total))
    of_set = SamplingError.none() if design.exact else stratified_error(influence, design, spread=spread, pull=pull)
    if design.clusters is None:
        return Variance(of_set, _independent_population(influence, design, of_set))
    return Variance(of_set, population_clusters_error(influence, design, design.clusters, of_set))


def _independent_population(influence: Float64Array, design: SampleDesign, of_set: SamplingError) -> SamplingError:
    """Add what the full set itself leaves open, S^2 / N with S^2 seen through the weights."""
    total = float(design.weights.sum())
    own = 0.0 if design.endless else design.mean(influence**2) * design.n / (design.n - 1) / total
    variance = of_set.variance + own
    shares = design.weights * influence / total
    third = float((shares * shares) @ shares)
    skewness = third / variance**1.5 if variance > 0 else 0.0
    degrees = of_set.degrees if math.isfinite(of_set.degrees) else float(design.n - 1)
    return SamplingError(variance, degrees, skewness, skewness)
