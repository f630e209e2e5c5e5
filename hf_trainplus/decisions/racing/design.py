"""The order in which a race reads rows: strata, and one nested order whose every prefix is a stratified sample."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.racing.strata import Strata
from hf_trainplus.results import Float64Array, Int64Array

_FLOOR = 0.15  # thin strata are still read at this share of the densest rate, so that forgetting is seen
_FEWEST = 4  # rows of a stratum before any is read by rate: a variance needs some
_GAINABLE = 0.7  # rows that can only be gained are read at least at this share of the densest rate
_MIXED_SHARE = 0.10  # after this share of all rows a comparison is near: read what makes it certain


@dataclass(frozen=True)
class Design:
    """One nested stratified order over N rows.

    A prefix of ``order`` holds a simple random sample of every stratum, of a size that depends on the prefix length
    alone; so all checkpoints read to the same depth share their rows.

    Args:
        order: (N,) rows in the order in which they are read.
        stratum: (N,) stratum of each row, 0..H-1.
        scale: (H,) expected spread of a row's difference there, relative to the largest.
        gainable: (H,) strata whose rows another checkpoint can only gain; None when there are none such.
        number: counts the designs of one race; records name it.
    """

    order: Int64Array
    stratum: Int64Array
    scale: Float64Array
    gainable: npt.NDArray[np.bool_] | None = None
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

    @cached_property
    def milestone(self) -> int | None:
        """Depth at which every gainable row is read, so that another checkpoint's gains are known; None without any."""
        if self.gainable is None:
            return None
        places = np.flatnonzero(self.gainable[self.ordered_stratum])
        return int(places[-1]) + 1 if len(places) else 0

    @cached_property
    def losses_met(self) -> Float64Array:
        """(N,) share of the losses expected of another checkpoint that stand in the first 1, 2, .. rows."""
        can_lose = np.ones(len(self.scale)) if self.gainable is None else ~self.gainable
        expected = np.cumsum((self.scale**2 * can_lose)[self.ordered_stratum])
        return np.asarray(expected / max(float(expected[-1]), 1e-300), dtype=np.float64)

    def counts(self, depth: int) -> Int64Array:
        """(H,) rows of each stratum in the first ``depth`` of the order."""
        known = self._counts_at.get(depth)
        if known is None:
            known = np.bincount(self.ordered_stratum[:depth], minlength=len(self.scale)).astype(np.int64)
            self._counts_at[depth] = known
        return known

    def rows_hash(self, depth: int) -> str:
        """Hash of the first ``depth`` rows, in the order of reading."""
        known = self._hash_at.get(depth)
        if known is None:
            known = blake2b(self.order[:depth].astype("<i8").tobytes(), digest_size=8).hexdigest()
            self._hash_at[depth] = known
        return known

    @cached_property
    def _counts_at(self) -> dict[int, Int64Array]:
        return {}

    @cached_property
    def _hash_at(self) -> dict[int, str]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the arrays that define the design."""
        small = np.uint8 if len(self.scale) <= 256 else np.uint32
        return {
            "order": self.order.astype(np.uint32),
            "stratum": self.stratum.astype(small),
            "scale": self.scale,
            "gainable": self.gainable,
            "number": self.number,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Design:
        """Rebuild what ``state_dict`` wrote."""
        gainable = state["gainable"]
        return cls(
            np.asarray(state["order"], dtype=np.int64),
            np.asarray(state["stratum"], dtype=np.int64),
            np.asarray(state["scale"], dtype=np.float64),
            None if gainable is None else np.asarray(gainable, dtype=bool),
            int(state["number"]),
        )


def nested_design(strata: Strata, *, seed: int, number: int = 0, equal_rates: bool = False) -> Design:
    """Draw the nested order: Neyman allocation by the strata's scale, random ranks inside each stratum.

    Row i of stratum h enters when the common rate reaches ``(rank + 1/2) / (N_h scale_h)``, which keeps allocation
    proportional to ``N_h scale_h`` at every depth and re-spreads what a fully read stratum leaves over. With gainable
    strata, what is left after the first tenth is read in the order that makes a verdict certain: all rows that can be
    gained, then those that are lost most easily.

    Args:
        strata: strata of the rows and the spread expected in each.
        seed: with ``number`` it fixes the ranks, alike in every process.
        number: which design of the race this is.
        equal_rates: read every stratum at the same rate, for a metric that weights cannot be given to.

    Returns:
        The design; the same arguments give the same design.

    Example:
        >>> strata = Strata(np.array([0] * 90 + [1] * 10), np.array([1.0, 9.0]))
        >>> nested_design(strata, seed=0).counts(20).tolist()
        [11, 9]
    """
    rates = np.ones(len(strata.scale)) if equal_rates else _rates(strata)
    size = len(strata.stratum)
    draws = np.random.default_rng([seed, number]).permutation(size)
    grouped = draws[np.argsort(strata.stratum[draws], kind="stable")]
    sizes = np.bincount(strata.stratum, minlength=len(rates))
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    ranks = np.arange(size) - np.repeat(starts, sizes)
    entry = (ranks + 0.5) / np.repeat(np.maximum(sizes, 1) * rates, sizes)
    entry[ranks < _FEWEST] = -1.0
    order = grouped[np.argsort(entry, kind="stable")]
    if strata.gainable is not None:
        order = _certain_first(order, strata, strata.gainable)
    largest = float(strata.scale.max()) or 1.0
    return Design(order, strata.stratum, strata.scale / largest, strata.gainable, number)


def _rates(strata: Strata) -> Float64Array:
    largest = float(strata.scale.max())
    if largest <= 0:
        return np.ones(len(strata.scale))
    rates = np.maximum(strata.scale / largest, _FLOOR)
    if strata.gainable is not None:
        rates = np.where(strata.gainable, np.maximum(rates, _GAINABLE), rates)
    return rates


def _certain_first(order: Int64Array, strata: Strata, gainable: npt.NDArray[np.bool_]) -> Int64Array:
    mixed = max(int(np.ceil(_MIXED_SHARE * len(order))), 2 * _FEWEST * len(strata.scale))
    rest = order[mixed:]
    can_gain = gainable[strata.stratum[rest]]
    others = rest[~can_gain]
    others = others[np.argsort(-strata.scale[strata.stratum[others]], kind="stable")]
    return np.concatenate([order[:mixed], rest[can_gain], others])


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
