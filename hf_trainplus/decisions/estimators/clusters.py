"""Errors where rows belong together: documents, conversations, authors."""

from __future__ import annotations

import math

import numpy as np

from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.sampling_error import SamplingError
from hf_trainplus.results import Float64Array, Int64Array


def population_clusters_error(
    influence: Float64Array, design: SampleDesign, clusters: Int64Array, of_set: SamplingError
) -> SamplingError:
    """Error for the population when rows were drawn and belong to clusters.

    The full set's own part is the variance between its clusters' totals. In a sample those totals are estimated, so the
    part of their squares that comes from drawing rows is taken out; ``of_set`` already holds it.

    Args:
        influence: (n,) influence of each row on the estimate, with weighted mean 0.
        design: how the rows were drawn.
        clusters: (n,) code of each row's cluster, 0 to G - 1.
        of_set: the error of drawing the rows.

    Returns:
        The error with G - 1 degrees of freedom at most; unknown with a single cluster.

    Source:
        For a full set the cluster-robust variance with factor G / (G - 1) (Miller 2024, arXiv 2411.00640).
    """
    totals = np.bincount(clusters, weights=design.weights * influence)
    groups, rows = len(totals), float(design.weights.sum())
    if groups < 2:
        return SamplingError.unknown()
    drawn = float((design.weights * (design.weights - 1)) @ influence**2)
    own = max((groups / (groups - 1) * float(totals @ totals) - drawn) / rows**2, 0.0)
    variance = of_set.variance + own
    skewness = float((totals * totals) @ totals) / rows**3 / variance**1.5 if variance > 0 else 0.0
    return SamplingError(variance, min(of_set.degrees, groups - 1.0), skewness, skewness)


def drawn_clusters_error(
    influence: Float64Array, design: SampleDesign, clusters: Int64Array, clusters_total: int
) -> tuple[SamplingError, SamplingError]:
    """Errors for the set and for the population when whole clusters were drawn at random.

    Args:
        influence: (n,) influence of each row on the estimate, with weighted mean 0.
        design: how the rows were drawn; its weights are alike.
        clusters: (n,) code of each row's cluster, 0 to G - 1.
        clusters_total: clusters in the full set.

    Returns:
        The two errors; the cluster's total is the unit, so the estimate is a ratio of totals.

    Source:
        Cochran, Sampling Techniques, 9A (clusters of unequal sizes, ratio to size).
    """
    totals = np.bincount(clusters, weights=design.weights * influence) / design.weights.sum()
    groups = len(totals)
    if groups < 2:
        own = SamplingError.none() if groups == clusters_total else SamplingError.unknown()
        return own, SamplingError.unknown()
    variance, unseen = groups / (groups - 1) * float(totals @ totals), 1 - groups / clusters_total
    skewness = float((totals * totals) @ totals) / variance**1.5 if variance > 0 else 0.0
    population = SamplingError(variance, groups - 1.0, skewness, skewness)
    if unseen == 0:
        return SamplingError.none(), population
    drawn = skewness * (2 * unseen - 1) / math.sqrt(unseen), skewness * math.sqrt(unseen)
    return SamplingError(variance * unseen, groups - 1.0, *drawn), population
