"""Start two real processes, as torchrun does, and hand back what rank 0 printed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]


def environment(**extra):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    return {**kept, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), **extra}


def torchrun(script, *arguments, processes=2, timeout=280, check=True, **extra):
    """Run ``script`` in ``processes`` processes; return the finished process with its texts."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes)]
    command += ["--standalone", "--local-ranks-filter", "0", str(script), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, cwd=ROOT, env=environment(**extra), check=False
    )
    if check:
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done


def print_everywhere(found):
    """Print what every rank has found, one JSON line on rank 0, and leave."""
    everywhere = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(everywhere, found)
    if torch.distributed.get_rank() == 0:
        print("FOUND " + json.dumps(everywhere), flush=True)
    leave()


def leave():
    """Meet the other ranks and end the process, as every script that ``torchrun`` starts must at its end.

    ``let_gloo_threads_finish`` says what may happen otherwise; a script here need not have a trainer.
    """
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
