"""Sums over rows without a BLAS: its threads cost more than such sums, and ranks with others would round apart."""

from __future__ import annotations

import numpy as np

from hf_trainplus.results import Float64Array


def total(weights: Float64Array, values: Float64Array) -> float:
    """Sum of (n,) products.

    Example:
        >>> total(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
        11.0
    """
    return float(np.einsum("i,i->", weights, values))


def totals(weights: Float64Array, columns: Float64Array) -> Float64Array:
    """(k,) sums of (n,) weights times (n, k) columns."""
    return np.asarray(np.einsum("i,ij->j", weights, columns), dtype=np.float64)


def combine(columns: Float64Array, coefficients: Float64Array) -> Float64Array:
    """(n,) combinations of (n, k) columns with (k,) coefficients."""
    if columns.shape[1] == 1:  # the same products, without a call that costs more than they do
        return np.asarray(columns[:, 0] * coefficients[0], dtype=np.float64)
    return np.asarray(np.einsum("ij,j->i", columns, coefficients), dtype=np.float64)


def products(first: Float64Array, second: Float64Array) -> Float64Array:
    """(k, k) sums of products of (n, k) columns."""
    return np.asarray(np.einsum("ij,ik->jk", first, second), dtype=np.float64)


def transform(columns: Float64Array, matrix: Float64Array) -> Float64Array:
    """(n, k) columns times a (k, k) matrix."""
    return np.asarray(np.einsum("ij,jk->ik", columns, matrix), dtype=np.float64)
