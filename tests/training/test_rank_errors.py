"""An evaluation that fails on one rank fails on all, with the checkpoint of its step written, and hangs none."""

import json

import pytest

from tests.support.launch import ROOT, torchrun

pytestmark = [pytest.mark.slow, pytest.mark.distributed]

# name -> (the error's text, the rank that meets it)
CASES = {
    "row": ("row 9", None),
    "row_in_order": ("row 9", None),
    "collator": ("collator", 1),
    "stream": ("row 9", 1),
    "forward": ("forward", 1),
    "forward_of_the_last_batch": ("forward", 1),
    "forward_of_a_language_model": ("forward", 1),
    "prediction_step": ("prediction_step", 1),
    "evaluate": ("evaluate", 0),
    "metric_object": ("forward", 1),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    done = torchrun(ROOT / "tests/support/rank_errors_two_ranks.py", folder, timeout=200)
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    return json.loads(line[len("FOUND ") :])


@pytest.mark.parametrize("name", CASES)
def test_the_checkpoint_is_written_and_marked_before_all_ranks_raise(found, name):
    text, rank = CASES[name]
    outcomes = [one[f"{name}_raise"]["outcome"] for one in found]
    failed = rank if rank is not None else [outcome[0] for outcome in outcomes].index("KeyError")
    assert outcomes[failed] == ["KeyError", repr(text)]
    other = outcomes[1 - failed]
    assert other[0] == "OtherRankError"
    assert f"the evaluation failed on another rank: KeyError({text!r})" in other[1]
    assert all(one[f"{name}_raise"]["marked"] == ["checkpoint-2"] for one in found)


@pytest.mark.parametrize("name", CASES)
def test_training_goes_on_on_all_ranks_where_that_is_asked_for(found, name):
    for one in found:
        assert one[f"{name}_continue"]["outcome"] == ["trained", 4]
        assert "checkpoint-2" in one[f"{name}_continue"]["marked"]
