"""A race in real processes: killed and resumed, and on two ranks."""

import json
import subprocess
import sys

import pytest

from tests.support.launch import ROOT, environment, torchrun

pytestmark = pytest.mark.slow


def found_on_both(script, *arguments):
    """Run a script on two ranks and return what it has found, which must be the same on both."""
    done = torchrun(ROOT / "tests/support" / script, *arguments, DS_ACCELERATOR="cpu")
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    found, of_the_other = json.loads(line[len("FOUND ") :])
    assert found == of_the_other
    return found


def test_killed_at_any_point_it_takes_the_same_decisions(tmp_path):
    command = [sys.executable, str(ROOT / "tests/support/race_kills.py"), str(tmp_path), "20"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n")[:-1] == ["same"] * 20


@pytest.mark.distributed
@pytest.mark.parametrize(("kind", "evaluations"), [("loss", 6), ("generated", 5)])
def test_two_ranks_take_one_decision(kind, evaluations, tmp_path):
    found = found_on_both("race_two_ranks.py", tmp_path, kind)
    assert found["race"] == [found["full"][0], pytest.approx(found["full"][1], abs=1e-6)]
    assert found["pairs"] <= evaluations * 240


@pytest.mark.distributed
@pytest.mark.parametrize(("kind", "metric"), [("fsdp2", "loss"), ("zero2", "accuracy"), ("zero3", "loss")])
def test_sharded_weights_are_raced_without_loading_any_again(kind, metric, tmp_path):
    found = found_on_both("race_sharded.py", tmp_path, kind, metric)
    step, value, folder, exists = found["full"]
    assert found["race"] == [step, pytest.approx(value, abs=1e-6), f"checkpoint-{step}", True]
    assert (folder, exists) == (f"checkpoint-{step}", True)
    assert step not in (4, 8)  # the best lies off the save grid
    assert found["race_loaded"] == found["full_loaded"] == pytest.approx(value, abs=1e-6)
    assert found["weights_equal"] is True
    assert found["reloads"] is False
    assert found["pairs"] < 0.9 * 8 * 400
    assert found["last"]["eval_best_step"] == step
    assert found["last"][f"eval_{metric}_exact"] == 1.0
    assert found["resumed"] == found["race"]
    assert found["resumed_pairs"] == found["pairs"]


@pytest.mark.slow
@pytest.mark.distributed
def test_two_ranks_of_another_trainer_take_one_decision(tmp_path):
    found = found_on_both("sft_race_two_ranks.py", tmp_path)
    assert found["race"] == [found["full"][0], pytest.approx(found["full"][1], abs=1e-6)]
    assert found["weights_equal"] is True
    assert found["pairs"] < 6 * 241
