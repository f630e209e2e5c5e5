import numpy as np
import pytest

from hf_trainplus.monitor.rank_table import Spread, spread_over_ranks


def test_columns_are_summarised_alone():
    table = spread_over_ranks(["data_wait", "other"], [[0.5, 3.0], [0.1, 1.0], [0.3, 2.0]])
    assert table["data_wait"] == Spread(0.1, pytest.approx(0.3), 0.5, 0)
    assert table["other"].largest_rank == 0


def test_a_column_that_a_rank_does_not_measure_is_left_out():
    table = spread_over_ranks(["a", "b"], [[1.0, float("nan")], [2.0, 1.0]])
    assert list(table) == ["a"]


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"rows has shape \(2, 1\) for 2 names"):
        spread_over_ranks(["a", "b"], [[1.0], [2.0]])
    with pytest.raises(ValueError, match="was given no value"):
        Spread.of(np.zeros(0))
