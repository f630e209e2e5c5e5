"""Kill a race at many points, resume it, and compare with the run that was never killed.

Prints ``same`` or what differs, one line a point. Children are forked from one parent that has imported everything and
started no thread.

    python tests/support/race_kills.py FOLDER POINTS
"""

import json
import math
import os
import shutil
import signal
import sys
from pathlib import Path

import torch
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from hf_trainplus.training.racing.session import RaceLimits
from tests.support.forked import in_child
from tests.training.test_race import make

torch.set_num_threads(1)
EVENTS = ("on_prediction_step", "on_evaluate", "on_save", "on_step_end")


class KillAt(TrainerCallback):
    """Sends SIGKILL to its own process at the n-th of the events that it counts; counts them all when n is None."""

    def __init__(self, point=None):
        self.point, self.count = point, 0

    def __getattribute__(self, name):
        if name in EVENTS:
            return self._event
        return super().__getattribute__(name)

    def _event(self, *args, **kwargs):
        self.count += 1
        if self.count == self.point:
            os.kill(os.getpid(), signal.SIGKILL)


def train(folder, point=None):
    killer = KillAt(point)
    trainer = make(
        folder,
        "race",
        rows=240,
        max_steps=8,
        per_device_eval_batch_size=20,
        callbacks=[killer],
        save_strategy="steps",
        save_steps=2,
        limits=RaceLimits(min_rows=100, min_seconds=0.0),
    )
    last = get_last_checkpoint(folder) if os.path.isdir(folder) else None
    trainer.train(resume_from_checkpoint=last)
    race = trainer._scheduled.race.session.race
    lines = (Path(folder) / "trainplus_decisions.jsonl").read_text().splitlines()
    decisions = [{k: v for k, v in json.loads(line).items() if "seconds" not in k} for line in lines]
    return {
        "best": trainer.state.best_global_step,
        "value": trainer.state.best_metric,
        "pairs": race.state.pairs,
        "candidates": list(race.candidates),
        "stop": trainer.state.global_step,
        "decisions": decisions,
        "weights": float(sum(value.double().abs().sum() for value in trainer.model.state_dict().values())).hex(),
        "events": killer.count,
    }


def alike(one, other):
    """Say whether two outcomes are equal, their numbers but for the last digits of float32.

    Rows that a resumed race reads again stand in other batches, which moves their losses by that much.
    """
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-6)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return one == other


def train_in_child(folder, point=None):
    """Train in a forked child; return what it found, or None when it was killed."""
    return in_child(lambda: train(str(folder), point), f"{folder}-{point}")


def main():
    root, points = Path(sys.argv[1]), int(sys.argv[2])
    root.mkdir(parents=True, exist_ok=True)
    whole = train_in_child(root / "whole")
    for number in range(points):
        point = 1 + round((whole["events"] - 1) * number / max(points - 1, 1))
        folder = root / f"killed-{number}"
        killed = train_in_child(folder, point)
        resumed = train_in_child(folder)
        names = [name for name in whole if name != "events" and not alike(resumed[name], whole[name])]
        print(
            "same" if killed is None and not names else f"differs at {point}: {names or 'was not killed'}", flush=True
        )
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
