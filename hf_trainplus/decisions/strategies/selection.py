"""Draw so many rows of each class in linear time: those with the smallest random keys, found without sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.results import Int64Array

_MOST_BINS = 1 << 20
_MOST_BITS = 16
_FEWEST_BITS = 3


def random_rows(
    codes: npt.NDArray[Any], sizes: Int64Array, counts: Int64Array, generator: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Draw rows at random within classes.

    Each row gets a 64-bit key from the bit generator, whose stream NumPy keeps the same over its versions. A histogram
    of the keys' leading bits tells in which bin each class's last row lies; only the rows of that bin are sorted.

    Args:
        codes: (n,) class of each row, 0 to H - 1.
        sizes: (H,) rows of each class.
        counts: (H,) rows to draw from each class, 0 to its size.
        generator: source of the keys.

    Returns:
        (n,) True for the rows drawn.

    Example:
        >>> codes = np.array([0, 0, 0, 1, 1, 1], np.uint8)
        >>> drawn = random_rows(codes, np.array([3, 3]), np.array([1, 3]), np.random.default_rng(0))
        >>> drawn[codes == 0].sum(), drawn[codes == 1].sum()
        (np.int64(1), np.int64(3))
    """
    keys = np.asarray(generator.bit_generator.random_raw(len(codes)), dtype=np.uint64)
    # no more cells than rows: counting them must not cost more than the rows do
    cells_a_class = max(1.0, min(_MOST_BINS, len(codes)) / max(len(sizes), 1))
    bits = min(_MOST_BITS, int(np.log2(cells_a_class)))
    bits = bits if bits >= _FEWEST_BITS else 0  # so few bins spare less sorting than they cost
    bins = (keys >> np.uint64(64 - bits)).astype(np.int32) if bits else np.zeros(len(codes), np.int32)
    last_bin, below = _last_bins(codes, bins, counts, len(sizes), 1 << bits)
    # classes that give all or none of their rows need no key
    last_bin = np.where(counts == sizes, 1 << bits, np.where(counts == 0, -1, last_bin))
    limit = last_bin.astype(np.int32)[codes]
    drawn: npt.NDArray[np.bool_] = bins < limit
    _draw_from_last_bin(drawn, np.flatnonzero(bins == limit), codes, keys, counts - below)
    return drawn


def _last_bins(
    codes: npt.NDArray[Any], bins: npt.NDArray[np.int32], counts: Int64Array, classes: int, width: int
) -> tuple[Int64Array, Int64Array]:
    """Bin in which each class's last row lies, and its rows in the bins before."""
    cells = codes.astype(np.int64)
    cells *= width
    cells += bins
    up_to = np.bincount(cells, minlength=classes * width).reshape(classes, width).cumsum(axis=1)
    last = (up_to < counts[:, None]).sum(axis=1)
    return last, np.where(last > 0, up_to[np.arange(classes), np.maximum(last - 1, 0)], 0)


def _draw_from_last_bin(
    drawn: npt.NDArray[np.bool_],
    rows: Int64Array,
    codes: npt.NDArray[Any],
    keys: npt.NDArray[np.uint64],
    wanted: Int64Array,
) -> None:
    """Draw the rows of each class's last bin that have the smallest keys.

    Class and key are packed into one number: sorting plain numbers is many times faster than sorting rows by two keys.
    The key gives up its last bits for the class; should two keys become equal there, rows are sorted after all.
    """
    of_class = codes[rows]
    in_bin = np.bincount(of_class, minlength=len(wanted))
    wanted = np.minimum(wanted, in_bin)  # classes that give all their rows have none here
    class_bits = max(1, int(len(wanted) - 1).bit_length())
    packed = of_class.astype(np.uint64) << np.uint64(64 - class_bits)
    packed |= keys[rows] >> np.uint64(class_bits)
    asked = np.flatnonzero(wanted)
    last = np.zeros(len(wanted), np.uint64)
    last[asked] = np.sort(packed)[(np.cumsum(in_bin) - in_bin + wanted - 1)[asked]]
    below = (packed <= last[of_class]) & (wanted > 0)[of_class]
    if np.count_nonzero(below) == wanted.sum():
        drawn[rows[below]] = True
        return
    ordered = rows[np.lexsort((keys[rows], of_class))]
    place = np.arange(len(ordered)) - np.repeat(np.cumsum(in_bin) - in_bin, in_bin)
    drawn[ordered[place < np.repeat(wanted, in_bin)]] = True
