"""A run that is killed while it writes, or at any moment, ends as the one that was not."""

import subprocess
import sys

import pytest

from tests.support.launch import ROOT, environment


@pytest.mark.slow
def test_killed_twice_and_resumed_it_ends_as_the_whole_run(tmp_path):
    command = [sys.executable, str(ROOT / "tests/support/checkpoint_kills.py"), str(tmp_path), "3", "1", "1"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, cwd=ROOT, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    whole, *found = done.stdout.splitlines()
    assert whole.startswith("whole: 6 steps, ")
    assert whole.endswith("left []")
    assert int(whole.split(" ")[3]) > 200
    assert found == ["same"] * 4
