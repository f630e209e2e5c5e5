"""Draws by row: exact distribution, independent of the batch, global random state untouched."""

import numpy as np
import pytest
import torch
from scipy import stats

from hf_trainplus.evaluation.row_seeds import RowSeededSampling, row_seeds


def test_draws_follow_the_probabilities():
    expected = np.array([0.5, 0.3, 0.15, 0.05])
    probabilities = torch.tensor(expected, dtype=torch.float32).expand(4000, 4)
    with RowSeededSampling(row_seeds(7, range(4000))):
        first, second = (torch.multinomial(probabilities, num_samples=1)[:, 0] for _ in range(2))
    for drawn in (first, second):
        assert stats.chisquare(np.bincount(drawn, minlength=4), 4000 * expected).pvalue > 1e-3
    table = np.zeros((4, 4))
    np.add.at(table, (first.numpy(), second.numpy()), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-3, "a row's draws depend on each other"


def test_a_row_draws_the_same_whatever_is_beside_it():
    probabilities = torch.rand(6, 50)
    seeds = row_seeds(0, [3, 1, 4, 15, 9, 2])
    with RowSeededSampling(seeds):
        together = [probabilities.multinomial(2) for _ in range(3)]
    for row in range(6):
        with RowSeededSampling(seeds[row : row + 1]):
            alone = [probabilities[row : row + 1].multinomial(2) for _ in range(3)]
        assert all(torch.equal(a[row], b[0]) for a, b in zip(together, alone, strict=True))


def test_draws_without_replacement_stay_so():
    with RowSeededSampling([1, 2]):
        drawn = torch.multinomial(torch.ones(2, 5), num_samples=5)
    assert drawn.sort(1).values.tolist() == [[0, 1, 2, 3, 4]] * 2


def test_the_global_state_is_left_alone():
    before = torch.random.get_rng_state()
    with RowSeededSampling([1]):
        torch.multinomial(torch.ones(1, 5), num_samples=1)
    assert torch.equal(before, torch.random.get_rng_state())


def test_seeds_follow_from_seed_and_position():
    assert row_seeds(0, [5]) != row_seeds(1, [5])
    assert len(set(row_seeds(0, range(1000)))) == 1000


@pytest.mark.parametrize("shape", [(3, 4), (1, 2, 4), (4,)])
def test_other_shapes_are_refused(shape):
    with RowSeededSampling([1, 2]), pytest.raises(ValueError, match="2 rows have seeds"):
        torch.multinomial(torch.ones(shape), num_samples=1)
