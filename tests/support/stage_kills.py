"""Kill a run of four stages at random, resume it until it ends, and compare with the run that was never killed.

Trials are forked from one parent that has imported everything and has started no thread. Half of the kills are at a
point (before or after a call by which files come to be, change their names or go; a write leaves half of its file),
the other half at a moment of wall-clock time, from outside. Prints one line a trial, ``same`` or what differs, and
before it where the kills hit.

    python tests/support/stage_kills.py FOLDER TRIALS SEED
    python tests/support/stage_kills.py --one FOLDER [POINT]     # this process trains, and dies at that point
"""

import hashlib
import json
import os
import random
import shutil
import sys
import time
from pathlib import Path

import torch
import transformers
from transformers.trainer_utils import get_last_checkpoint

from tests.support import stages
from tests.support.checkpoint_kills import Killer, watch_files
from tests.support.forked import in_child

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
PLAN = stages.without(stages.THREE)
PLAN["stages"].append({"name": "release", "preset": "production"})
OPTIONS = {"save_steps": 2, "save_total_limit": 2, "metric_for_best_model": "loss"}


def train(folder, point=None):
    resume = os.path.isdir(folder) and get_last_checkpoint(folder) is not None
    trainer = stages.make(folder, PLAN, **OPTIONS)
    killer = Killer(point)
    watch_files(killer)
    trainer.train(resume_from_checkpoint=resume)
    found = stages.outcome(trainer)
    weights = {name: value.numpy().tobytes() for name, value in found["weights"].items()}
    return {
        "weights": {name: hashlib.sha256(value).hexdigest() for name, value in weights.items()},
        "logs": found["logs"],
        "step": found["step"],
        "best": found["best"],
        "reason": stages.record(folder, found["step"])["reason"],
        "points": killer.count,
    }


def train_in_child(folder, point=None, seconds=None):
    """Train in a forked child; return what it found, or None when it was killed."""
    return in_child(lambda: train(str(folder), point), folder, seconds)


def place(folder):
    """Where a killed run stands: stage and step of its newest checkpoint."""
    last = get_last_checkpoint(str(folder)) if folder.is_dir() else None
    if last is None:
        return "before its first checkpoint"
    saved = stages.record(folder, int(last.rpartition("-")[2]))
    at_boundary = saved["next_stage"] is not None or saved["reason"] is not None
    return f"{saved['name']}{' (boundary)' if at_boundary else ''} step {last.rpartition('-')[2]}"


def trial(root, number, whole, draw):
    """Kill a run twice, let it end, and return where it was killed and what differs from the whole one."""
    folder, places = root / f"killed-{number}", []
    for _ in range(2):
        by_point = draw.random() < 0.5
        how = (
            {"point": draw.randint(1, whole["points"])} if by_point else {"seconds": draw.uniform(0, whole["seconds"])}
        )
        if train_in_child(folder, **how) is None:
            places.append(place(folder))
    ended = train_in_child(folder)
    wrong = [name for name in ("weights", "logs", "step", "best", "reason") if ended[name] != whole[name]]
    shutil.rmtree(folder, ignore_errors=True)
    return places, wrong


def trials(root, count, seed):
    """Yield the whole run's outcome, and then for each trial where it was killed and what differs."""
    root.mkdir(parents=True, exist_ok=True)
    draw, begin = random.Random(seed), time.monotonic()
    whole = train_in_child(root / "whole")
    whole["seconds"] = time.monotonic() - begin
    yield whole
    for number in range(count):
        yield trial(root, number, whole, draw)


def main(root, count, seed):
    whole, *found = trials(root, count, seed)
    print(f"whole: step {whole['step']}, {whole['reason']}, {whole['points']} points")
    for places, wrong in found:
        print(f"{', '.join(places) or 'not killed'}: {'differs in ' + ', '.join(wrong) if wrong else 'same'}")


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        print("FOUND " + json.dumps(train(sys.argv[2], *map(int, sys.argv[3:]))))
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
