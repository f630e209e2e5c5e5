"""Whole batches drawn at random, for losses that only batches have."""

import numpy as np
import pytest

from hf_trainplus.decisions.estimate import mean_interval
from hf_trainplus.decisions.strategies.whole_batches import draw_batches


@pytest.mark.parametrize(
    ("rows", "size", "batch_size"), [(103, 20, 10), (100, 100, 7), (5, 1, 8), (64, 9, 8), (9, 9, 1)]
)
@pytest.mark.parametrize("seed", range(5))
def test_every_batch_is_there_as_a_whole(rows, size, batch_size, seed):
    subset = draw_batches(rows, size, batch_size, seed=seed)
    chosen = set((subset.indices // batch_size).tolist())
    assert subset.indices.tolist() == [row for row in range(rows) if row // batch_size in chosen]
    assert len(chosen) == -(-size // batch_size)
    assert subset.weights.sum() == pytest.approx(rows)
    assert subset.design().exact == (len(subset) == rows)
    assert subset.design().clusters_total == -(-rows // batch_size)


def test_seeds_give_other_batches_and_one_the_same():
    first, same, other = (draw_batches(1000, 100, 10, seed=seed).indices.tolist() for seed in (0, 0, 1))
    assert first == same != other


def test_intervals_of_values_that_batches_share_hold():
    generator = np.random.default_rng(0)
    values = np.repeat(generator.normal(size=200), 10)[:1995] + 0.1 * generator.normal(size=1995)
    held = []
    for seed in range(500):
        subset = draw_batches(1995, 400, 10, seed=seed)
        found = mean_interval(values[subset.indices], design=subset.design())
        held.append(found.ci_low <= values.mean() <= found.ci_high)
    assert 0.92 <= np.mean(held) <= 0.98


def test_other_clusters_do_not_replace_those_that_were_drawn():
    subset = draw_batches(40, 20, 5, seed=0)
    design = subset.design_of(subset.indices[::-1], clusters=np.arange(20))
    assert design.clusters.tolist() == np.repeat([3, 2, 1, 0], 5).tolist()
    assert design.clusters_total == 8
