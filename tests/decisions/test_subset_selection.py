"""The linear-time draw against plain counting."""

import numpy as np
import pytest

from hf_trainplus import representative_subset
from hf_trainplus.decisions.strategies.selection import random_rows


@pytest.mark.parametrize("classes", [1, 3, 40, 3000])
@pytest.mark.parametrize("seed", range(5))
def test_each_class_gives_what_was_asked(classes, seed):
    generator = np.random.default_rng(seed)
    codes = generator.integers(0, classes, 4000).astype(np.uint16)
    sizes = np.bincount(codes, minlength=classes)
    counts = generator.integers(0, sizes + 1)
    counts[: classes // 3] = sizes[: classes // 3]
    drawn = random_rows(codes, sizes, counts, generator)
    np.testing.assert_array_equal(np.bincount(codes[drawn], minlength=classes), counts)


def test_each_row_is_drawn_as_often():
    codes = np.repeat([0, 1, 2], [5, 20, 400]).astype(np.uint8)
    counts = np.array([2, 5, 100])
    drawn = sum(
        random_rows(codes, np.array([5, 20, 400]), counts, np.random.default_rng(seed)).astype(int)
        for seed in range(4000)
    )
    expected = 4000 * (counts / [5, 20, 400])[codes]
    deviation = np.sqrt(expected * (1 - expected / 4000))
    assert (np.abs(drawn - expected) / deviation).max() < 4.5


def test_rows_are_drawn_independently_of_each_other():
    together = np.zeros((12, 12))
    for seed in range(4000):
        rows = random_rows(np.zeros(12, np.uint8), np.array([12]), np.array([4]), np.random.default_rng(seed))
        together += np.outer(rows, rows)
    pairs = together[np.triu_indices(12, 1)]
    # 4 * 3 / (12 * 11) of 4,000 draws
    assert np.abs(pairs - 363.6).max() < 4.5 * np.sqrt(363.6 * 0.91)


def test_a_larger_subset_of_one_seed_holds_the_smaller():
    table = {"label": np.random.default_rng(0).integers(0, 4, 2000)}
    small, large = (set(representative_subset(table, size, seed=7).indices.tolist()) for size in (100, 300))
    assert small <= large


def test_more_classes_than_bins():
    classes = (1 << 20) + 5
    codes = np.arange(classes, dtype=np.uint32)
    counts = (codes % 2).astype(np.int64)
    drawn = random_rows(codes, np.ones(classes, np.int64), counts, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn, counts.astype(bool))


class Keys:
    """A source of given keys."""

    def __init__(self, keys):
        self.bit_generator, self._keys = self, np.asarray(keys, np.uint64)

    def random_raw(self, count):
        return self._keys[:count]


def smallest(codes, keys, counts):
    """The rows with the smallest keys of each class, by sorting them all."""
    drawn = np.zeros(len(codes), bool)
    for one, count in enumerate(counts):
        rows = np.flatnonzero(codes == one)
        drawn[rows[np.argsort(keys[rows], kind="stable")[:count]]] = True
    return drawn


@pytest.mark.parametrize("classes", [1, 2, 7, 300, 2500])
@pytest.mark.parametrize("key_bits", [64, 3])
def test_the_rows_with_the_smallest_keys_are_drawn_however_many_keys_are_equal(classes, key_bits):
    generator = np.random.default_rng(classes)
    codes = generator.integers(0, classes, 3000)
    sizes = np.bincount(codes, minlength=classes)
    counts = generator.integers(0, sizes + 1)
    keys = generator.integers(0, 1 << key_bits, 3000, dtype=np.uint64)
    drawn = random_rows(codes, sizes, counts, Keys(keys))
    np.testing.assert_array_equal(drawn, smallest(codes, keys, counts))
