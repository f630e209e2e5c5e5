"""The order in which a race reads rows: strata, and one nested order whose every prefix is a stratified sample."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.results import Float64Array, Int64Array

_FLOOR = 0.15  # thin strata are still read at this share of the densest rate, so that forgetting is seen
_FEWEST = 4  # rows of a stratum before any is read by rate: a variance needs some


@dataclass(frozen=True)
class Design:
    """One nested stratified order over N rows.

    A prefix of ``order`` holds a simple random sample of every stratum, of a size that depends on the prefix length
    alone; so all checkpoints read to the same depth share their rows.

    Args:
        order: (N,) rows in the order in which they are read.
        stratum: (N,) stratum of each row, 0..H-1.
        scale: (H,) expected spread of a row's difference there, relative to the largest.
        number: counts the designs of one race; records name it.
    """

    order: Int64Array
    stratum: npt.NDArray[np.int64]
    scale: Float64Array
    number: int = 0

    @property
    def size(self) -> int:
        """Number of rows N."""
        return len(self.order)

    @cached_property
    def sizes(self) -> Int64Array:
        """(H,) number of rows of each stratum."""
        return np.bincount(self.stratum, minlength=len(self.scale)).astype(np.int64)

    @cached_property
    def ordered_stratum(self) -> npt.NDArray[np.int64]:
        """(N,) stratum of ``order[i]``."""
        return self.stratum[self.order]

    def counts(self, depth: int) -> Int64Array:
        """(H,) rows of each stratum in the first ``depth`` of the order."""
        return np.bincount(self.ordered_stratum[:depth], minlength=len(self.scale)).astype(np.int64)

    def state_dict(self) -> dict[str, Any]:
        """Return the arrays that define the design."""
        small = np.uint8 if len(self.scale) <= 256 else np.uint32
        return {
            "order": self.order.astype(np.uint32),
            "stratum": self.stratum.astype(small),
            "scale": self.scale,
            "number": self.number,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Design:
        """Rebuild what ``state_dict`` wrote."""
        return cls(
            np.asarray(state["order"], dtype=np.int64),
            np.asarray(state["stratum"], dtype=np.int64),
            np.asarray(state["scale"], dtype=np.float64),
            int(state["number"]),
        )


def nested_design(stratum: Int64Array, scale: Float64Array, *, seed: int, number: int = 0) -> Design:
    """Draw the nested order: Neyman allocation by ``scale``, random ranks inside each stratum.

    Row i of stratum h enters when the common rate reaches ``(rank + 1/2) / (N_h scale_h)``, which keeps allocation
    proportional to ``N_h scale_h`` at every depth and re-spreads what a fully read stratum leaves over.

    Args:
        stratum: (N,) stratum of each row, 0..H-1.
        scale: (H,) expected spread of a row's difference in each stratum, any unit, >= 0.
        seed: with ``number`` it fixes the ranks, alike in every process.
        number: which design of the race this is.

    Returns:
        The design; the same arguments give the same design.

    Example:
        >>> design = nested_design(np.array([0] * 90 + [1] * 10), np.array([1.0, 9.0]), seed=0)
        >>> design.counts(20).tolist()
        [11, 9]
    """
    size, strata = len(stratum), len(scale)
    largest = float(scale.max()) if strata else 0.0
    relative = np.maximum(scale / largest, _FLOOR) if largest > 0 else np.ones(strata)
    draws = np.random.default_rng([seed, number]).permutation(size)
    grouped = draws[np.argsort(stratum[draws], kind="stable")]
    sizes = np.bincount(stratum, minlength=strata)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    ranks = np.arange(size) - np.repeat(starts, sizes)
    entry = (ranks + 0.5) / np.repeat(np.maximum(sizes, 1) * relative, sizes)
    entry[ranks < _FEWEST] = -1.0
    return Design(grouped[np.argsort(entry, kind="stable")], stratum, scale / (largest or 1.0), number)


def look_depths(fractions: tuple[float, ...], size: int, *, first_rows: int, chunk: int) -> Int64Array:
    """Return the depths at which a race looks: rising, each a multiple of ``chunk`` rows, the last one N.

    Depths are fixed before any row is read, so that rounding to world size times batch size cannot bias a look.

    Args:
        fractions: shares of N, rising, the last one 1.
        size: number of rows N.
        first_rows: no look before this many rows.
        chunk: world size times batch size, >= 1.

    Example:
        >>> look_depths((0.02, 0.1, 1.0), 1001, first_rows=100, chunk=8).tolist()
        [104, 1001]
    """
    wanted = np.maximum(np.ceil(np.asarray(fractions) * size), first_rows)
    rounded = np.ceil(wanted / chunk) * chunk
    return np.unique(np.minimum(rounded, size)).astype(np.int64)
