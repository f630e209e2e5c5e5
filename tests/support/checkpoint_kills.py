"""Kill a training process while it writes checkpoints, resume it, and compare with the run that was never killed.

Trials are forked from one parent that has imported everything and has started no thread. A point is a place just
before or just after one of the calls by which files come to be, change their names or go; before a write, half of what
it writes is left. Prints one line a trial, ``same`` or what differs.

    python tests/support/checkpoint_kills.py FOLDER POINTS MOMENTS SEED

POINTS trials kill at random points, MOMENTS trials at random moments of wall-clock time, from outside.
"""

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
import transformers.modeling_utils
from transformers import TrainerState
from transformers.trainer_utils import get_last_checkpoint

from hf_trainplus.training.checkpoints.whole import why_torn
from hf_trainplus.training.checkpoints.writer import PREFIX
from tests.support import resume_runs as runs
from tests.support.forked import in_child

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
RUN = {"save_total_limit": 2, "max_steps": 6, "metric_for_best_model": "loss", "logging_steps": 4}


class Killer:
    """Counts points, and sends SIGKILL to its own process at one of them; counts them all when ``point`` is None."""

    def __init__(self, point=None):
        self.point, self.count = point, 0

    def pass_by(self, leave_half=lambda: None):
        self.count += 1
        if self.count == self.point:
            leave_half()
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, owner, name, half=None):
        original = getattr(owner, name)

        def watched(*args, **kwargs):
            self.pass_by(lambda: half and half(original, args, kwargs))
            result = original(*args, **kwargs)
            self.pass_by()
            return result

        setattr(owner, name, watched)


def half_written(place):
    def leave(original, args, kwargs):
        original(*args, **kwargs)
        path = args[place]
        if isinstance(path, (str, os.PathLike)) and os.path.isfile(path):
            os.truncate(path, os.path.getsize(path) // 2)

    return leave


def half_removed(original, args, kwargs):
    for inner, _, names in os.walk(args[0]):
        for name in names[::2]:
            os.remove(os.path.join(inner, name))


def watch_files(killer):
    killer.watch(torch, "save", half_written(1))
    killer.watch(transformers.modeling_utils, "safe_save_file", half_written(1))
    killer.watch(TrainerState, "save_to_json", half_written(1))
    killer.watch(shutil, "rmtree", half_removed)
    for name in ("rename", "replace", "fsync"):
        killer.watch(os, name)


def train(folder, point=None):
    resume = os.path.isdir(folder) and get_last_checkpoint(folder) is not None
    trainer = runs.make(folder, "subset", **RUN)
    killer = Killer(point)
    watch_files(killer)
    output = trainer.train(resume_from_checkpoint=resume)
    found = runs.outcome(trainer, output)
    weights = found.pop("weights")
    sums = {name: [float(value.double().sum()), float(value.double().abs().max())] for name, value in weights.items()}
    return {**found, "weights": sums, "points": killer.count, "folder": left_in(folder)}


def left_in(folder):
    """What a finished run must not leave: a torn checkpoint, or anything under a temporary name.

    How many checkpoints are left may differ by one: a kill between the last save and its rotation leaves one more.
    """
    names = sorted(os.listdir(folder))
    torn = [name for name in names if name.startswith("checkpoint-") and why_torn(Path(folder, name))]
    return torn + [name for name in names if name.startswith(PREFIX)]


def train_in_child(folder, point=None, seconds=None):
    """Train in a forked child; return what it found, or None when it was killed."""
    return in_child(lambda: train(str(folder), point), folder, seconds)


def usable(folder):
    """Say what is wrong with the checkpoint that stock's own search finds after a kill; None for nothing."""
    last = get_last_checkpoint(str(folder)) if folder.is_dir() else None
    why = None if last is None else why_torn(last)
    return None if why is None else f"{os.path.basename(last)} {why}"


def trial(root, number, whole, draw, moments):
    """Kill a run twice and let it end; return what differs from the whole one."""
    folder, wrong = root / f"killed-{number}", []
    for _ in range(2):
        killed = (
            {"seconds": draw.uniform(0.0, whole["seconds"])} if moments else {"point": draw.randint(1, whole["points"])}
        )
        if train_in_child(folder, **killed) is not None:
            break  # a resumed run passes fewer points
        wrong += [usable(folder)] if usable(folder) else []
    last = train_in_child(folder)
    wrong += [name for name in whole if name not in ("points", "seconds") and last[name] != whole[name]]
    shutil.rmtree(folder, ignore_errors=True)
    return wrong


def trials(root, points, moments, seed=0):
    """Yield the whole run's outcome, and then for each trial what differs from it."""
    root.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    whole = train_in_child(root / "whole")
    whole["seconds"] = time.monotonic() - start
    yield whole
    for number in range(points + moments):
        draw = random.Random(seed * 1000 + number)
        yield trial(root, number, whole, draw, moments=number >= points)


def main(root, points, moments, seed):
    whole, *found = trials(root, points, moments, seed)
    print(f"whole: {whole['steps']} steps, {whole['points']} points, left {whole['folder']}")
    for wrong in found:
        print(f"differs: {wrong}" if wrong else "same")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
