"""Two real processes agree on what is known, and keep it once."""

import json

import pytest

from hf_trainplus import load_metric
from tests.support.cached_runs import evaluated, make
from tests.support.launch import ROOT, torchrun

pytestmark = [pytest.mark.slow, pytest.mark.distributed]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    return folder, evaluated(make(folder, metric=load_metric("accuracy")))[0]


@pytest.fixture(scope="module")
def found(tmp_path_factory, alone):
    done = torchrun(ROOT / "tests/support/cache_two_ranks.py", tmp_path_factory.mktemp("two"), alone[0])
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    return json.loads(line[len("FOUND ") :])


def test_both_run_or_neither(found):
    assert [ran for _, ran in found["first"]] == [True, True]
    assert [ran for _, ran in found["second"]] == [False, False]
    assert [ran for _, ran in found["damaged"]] == [True, True]
    assert [ran for _, ran in found["mended"]] == [False, False]


def test_both_log_the_same_values(found):
    values = [metrics for name in ("first", "second", "damaged", "mended") for metrics, _ in found[name]]
    assert all(metrics == values[0] for metrics in values)
    assert values[0]["eval_examples"] == 11
    assert found["said"] == [[], []]


def test_nothing_is_left_but_whole_files(found):
    assert set(found["files"][0]) == {"parquet"}
    assert found["files"][0] == found["files"][1]


def test_what_one_process_kept_answers_two(found, alone):
    assert found["alone"] == [[alone[1], False], [alone[1], False]]


def test_ranks_that_hold_other_weights_keep_nothing_and_say_so_once(found):
    assert found["other_weights"] == [[True, True], [True, True]]
    assert found["other_weights_files"] == []
    first, second = found["other_weights_said"]
    assert len(first) == 1
    assert "processes hold different weights, data or code" in first[0]
    assert second == []


def test_ranks_that_hold_other_code_keep_nothing(found):
    assert found["other_code"] == [[True, True], [True, True]]
    assert found["other_code_files"] == []


def test_a_repeated_run_evaluates_nothing_again(found):
    first, again = found["run"], found["run_again"]
    assert [batches for batches, _ in again] == [0, 0]
    assert all(batches > 0 for batches, _ in first)
    assert [entries for _, entries in first] == [entries for _, entries in again]
    assert len(first[0][1]) == 2
