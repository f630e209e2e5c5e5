"""A run of a plan that is killed anywhere, at boundaries and in the middle of a save too, ends as one that was not."""

import json
import random
import signal
import subprocess
import sys

import pytest

from tests.support.launch import ROOT, environment

SCRIPT = str(ROOT / "tests/support/stage_kills.py")


def started(*words):
    command = [sys.executable, SCRIPT, *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=280, cwd=ROOT, env=environment(), check=False
    )


def trained(folder):
    done = started("--one", folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))[6:])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.slow
@pytest.mark.parametrize("fifth", [0, 2, 4])
def test_a_process_that_is_killed_and_a_new_one_end_with_the_same_weights(tmp_path, whole, fifth):
    low, high = (1 + whole["points"] * part // 5 for part in (fifth, fifth + 1))
    killed = started("--one", tmp_path / "run", random.Random(fifth).randrange(low, high))
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
    found = trained(tmp_path / "run")
    assert {name: found[name] for name in found if name != "points"} == {
        name: whole[name] for name in whole if name != "points"
    }


@pytest.mark.slow
def test_five_runs_that_are_killed_twice_end_with_the_same_weights(tmp_path):
    done = started(tmp_path, 5, 3)
    assert done.returncode == 0, done.stderr[-3000:]
    whole, *found = done.stdout.splitlines()
    assert whole.startswith("whole: step 19, plan_finished, ")
    assert int(whole.split()[-2]) > 200
    assert len(found) == 5
    assert all(line.endswith(": same") for line in found), found
    assert sum("not killed" not in line for line in found) >= 4
