import numpy as np
import pytest

from hf_trainplus.evaluation import rank_errors
from hf_trainplus.evaluation.rank_errors import RankErrors, agreed
from hf_trainplus.evaluation.ranks import OtherRankError, Ranks
from hf_trainplus.evaluation.windows import LoadedBatch, together


class TwoRanks:
    """This rank beside another one that says ``other``."""

    size = 2

    def __init__(self, other):
        self.other = other

    def any(self, flag):
        return flag or bool(self.other)

    def gather(self, value):
        return [value, self.other]


def batch(k):
    return LoadedBatch(np.array([k]), np.ones(1, dtype=bool), {"x": k})


def batches_that_fail():
    yield batch(0)
    raise KeyError("row 9")


def test_a_batch_that_cannot_be_read_comes_empty_and_fails_where_all_hear_of_it():
    errors = RankErrors(TwoRanks(other=False))
    read = errors.batches(batches_that_fail())
    assert next(read).inputs == {"x": 0}
    errors.raise_own()
    empty = next(read)
    assert (empty.inputs, empty.real.tolist()) == (None, [False])
    with pytest.raises(KeyError, match="row 9"):
        errors.raise_own()
    assert list(read) == []


def test_batches_that_end_are_no_error():
    errors = RankErrors(TwoRanks(other=False))
    assert [one.inputs["x"] for one in errors.batches([batch(0), batch(1)])] == [0, 1]
    errors.settle()


def test_the_first_error_counts_and_is_raised_by_the_rank_that_met_it():
    errors = RankErrors(TwoRanks(other=False))
    for text in ("first", "second"):
        with errors.kept():
            raise KeyError(text)
    with pytest.raises(KeyError, match="first"):
        errors.settle()
    with pytest.raises(OtherRankError, match="failed on another rank, whose own error says why"):
        RankErrors(TwoRanks(other=True)).settle()


def test_one_process_raises_where_it_happens():
    with pytest.raises(KeyError, match="row 9"):
        list(RankErrors(Ranks()).batches(batches_that_fail()))


@pytest.mark.parametrize("own", [None, OtherRankError("another rank could not read its rows")])
def test_a_rank_that_is_well_says_what_the_other_met(own, monkeypatch):
    def compute():
        if own is not None:
            raise own
        return 1

    monkeypatch.setattr(rank_errors.Ranks, "current", lambda: TwoRanks("KeyError('row 9')"))
    with pytest.raises(OtherRankError, match=r"the evaluation failed on another rank: KeyError\('row 9'\)"):
        agreed(compute, "evaluation")
    monkeypatch.setattr(rank_errors.Ranks, "current", lambda: TwoRanks(None))
    if own is None:
        assert agreed(compute, "evaluation") == 1
    else:
        with pytest.raises(OtherRankError, match="could not read its rows"):
            agreed(compute, "evaluation")


def test_windows_are_given_up_together():
    def windows():
        yield "first"
        raise KeyError("row 9")

    asked = []

    def alone_failing(value):
        asked.append(value)
        return value

    read = together(windows(), alone_failing)
    assert next(read) == "first"
    with pytest.raises(KeyError, match="row 9"):
        next(read)
    assert asked == [0, 1]
    with pytest.raises(OtherRankError, match="another rank could not read its rows"):
        next(together(iter(["first"]), lambda value: 1))
    assert list(together(iter([1, 2]), None)) == [1, 2]
    assert list(together(iter([1, 2]), alone_failing)) == [1, 2]
