"""What one of two ranks sees holds for both; both end at the same step, and the processes with exit code 0."""

import json

import pytest

from tests.callbacks import budget_two_ranks
from tests.support.launch import torchrun

pytestmark = [pytest.mark.distributed, pytest.mark.slow]


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    done = torchrun(budget_two_ranks.__file__, tmp_path_factory.mktemp("ranks"))
    assert done.returncode == 0
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"case"')]
    return {line["case"]: line["ranks"] for line in lines}


def test_only_one_rank_passes_its_deadline_and_both_end_there(cases):
    first, second = cases["deadline"]
    assert first == second
    assert (first["reason"], first["limit"]) == ("deadline", "deadline")
    # a step takes 5 s on the slow rank: 60 s hold at most 12, and the fast one is not even at a quarter of them
    assert 8 <= first["step"] <= 12
    assert first["evaluations"][-1] == first["saves"][-1] == first["step"]


def test_only_one_rank_passes_its_limit_and_both_end_there(cases):
    first, second = cases["limit"]
    assert first == second
    assert (first["reason"], first["limit"]) == ("budget_spent", "wall_clock")
    assert 16 <= first["step"] <= 20
    assert first["evaluations"][-1] == first["saves"][-1] == first["step"]


def test_a_spent_budget_takes_no_step_on_any_rank(cases):
    before, again = cases["limit"], cases["limit-again"]
    for one, other in zip(before, again, strict=True):
        assert (other["step"], other["limit"]) == (one["step"], "wall_clock")
        assert (other["evaluations"], other["saves"]) == ([], [])
        assert other["weights"] == one["weights"]


def test_a_signal_that_reaches_one_rank_stops_both(cases):
    first, second = cases["signal"]
    assert first == second
    assert (first["step"], first["reason"]) == (7, "signal")
    assert (first["evaluations"], first["saves"]) == ([], [7])


def test_a_stop_file_that_one_rank_sees_stops_both(cases):
    first, second = cases["file"]
    assert first == second
    assert (first["step"], first["reason"]) == (0, "stop_file")


def test_a_learning_rate_that_follows_the_budget_is_equal_on_all_ranks(cases):
    first, second = cases["rate"]
    assert first == second
    assert first["rates"][0] == 0.1
    assert first["rates"][-1] <= 0.1 / 10
