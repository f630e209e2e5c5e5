"""Counts how often seeded intervals hold the truth; shared by the tests of coverage."""

import numpy as np

DRAWS = 500


def coverage(draw, truth):
    """Share of draws whose interval holds the truth; a draw without an interval counts as a miss."""
    hits = 0
    for seed in range(DRAWS):
        found = draw(np.random.default_rng(seed))
        hits += found.ci_low is not None and found.ci_low <= truth <= found.ci_high
    return hits / DRAWS


def assert_covers(draw, truth):
    share = coverage(draw, truth)
    print(f"covered {share:.3f}")
    assert 0.92 <= share <= 0.98, f"covered {share:.3f}"


def rows_of(generator, total, n):
    return generator.permutation(total)[:n]
