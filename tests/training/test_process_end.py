"""A process that talked to others waits a moment for gloo's threads before it ends; one alone does not."""

import subprocess
import sys
import time

import pytest
import torch

from hf_trainplus.training import process_end
from tests.support.launch import ROOT, environment

SCRIPT = """
import time
from hf_trainplus.training import process_end
process_end.time.sleep = lambda seconds: print("waited", seconds)
{setting}
process_end.let_gloo_threads_finish()
process_end.let_gloo_threads_finish()
"""
TWO = "import torch; d = torch.distributed; d.is_initialized = lambda: True; d.get_world_size = lambda: 2"


@pytest.mark.parametrize(("setting", "printed"), [("", ""), (TWO, "waited 0.2\n")])
def test_two_ranks_wait_once_and_one_alone_never(setting, printed):
    code = SCRIPT.format(setting=setting)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_the_wait_is_short():
    began = time.monotonic()
    process_end._wait()
    assert process_end._SECONDS <= time.monotonic() - began < 5
    assert not torch.distributed.is_initialized()
