"""Signals from outside: to the process itself, and to the launcher above two ranks. Exit codes as documented."""

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.callbacks import budget_signal_run
from tests.support.launch import ROOT, environment

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

TORCHRUN = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]


def signalled(folder, one, *launcher, ranks=1):
    """Start the run, send a signal once all ranks train, and return the exit code and what the ranks say."""
    command = [sys.executable, *launcher, budget_signal_run.__file__, str(folder)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        under_way = [folder / f"running-{rank}" for rank in range(ranks)]
        deadline = time.monotonic() + 120
        while not all(path.exists() for path in under_way):
            assert process.poll() is None, process.stderr.read()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(one)
        process.communicate(timeout=60)
    ended = [(folder / f"ended-{rank}").read_text().split() for rank in range(ranks)]
    return process.returncode, ended


def checkpoint_of(folder, step):
    return json.loads((folder / "out" / f"checkpoint-{step}" / "trainer_state.json").read_text())


def test_a_signal_to_the_process_saves_and_ends_with_zero(tmp_path):
    code, [(step, reason)] = signalled(tmp_path, signal.SIGTERM)
    assert (code, reason) == (0, "signal")
    assert checkpoint_of(tmp_path, step)["global_step"] == int(step)


def test_sigterm_to_the_launcher_reaches_all_ranks_which_save_and_it_ends_with_one(tmp_path):
    code, ended = signalled(tmp_path, signal.SIGTERM, *TORCHRUN, ranks=2)
    assert ended[0] == ended[1]
    step, reason = ended[0]
    assert reason == "signal"
    assert checkpoint_of(tmp_path, step)["global_step"] == int(step)
    # torchrun passes the signal on, waits for its workers, and then reports that it was told to end
    assert code == 1


def test_sigusr1_to_the_launcher_is_passed_on_when_it_is_told_to(tmp_path):
    handled = ["--signals-to-handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"]
    _, ended = signalled(tmp_path, signal.SIGUSR1, *TORCHRUN, *handled, ranks=2)
    assert ended[0] == ended[1]
    assert ended[0][1] == "signal"
