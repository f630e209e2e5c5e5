"""A run of a plan that is killed anywhere, at boundaries and in the middle of a save too, ends as one that was not."""

import subprocess
import sys

import pytest

from tests.support.launch import ROOT, environment


@pytest.mark.slow
def test_five_runs_that_are_killed_twice_end_with_the_same_weights(tmp_path):
    command = [sys.executable, str(ROOT / "tests/support/stage_kills.py"), str(tmp_path), "5", "3"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, cwd=ROOT, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    whole, *found = done.stdout.splitlines()
    assert whole.startswith("whole: step 19, plan_finished, ")
    assert int(whole.split()[-2]) > 200
    assert len(found) == 5
    assert all(line.endswith(": same") for line in found), found
    assert sum("not killed" not in line for line in found) >= 4
