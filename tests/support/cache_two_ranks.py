"""What two ranks make of an evaluation cache; prints one JSON line of named findings on rank 0.

Arguments: a folder, and a folder in which one process alone has kept an evaluation.
"""

import json
import sys
from pathlib import Path

import torch

from hf_trainplus import load_metric
from tests.support import tiny
from tests.support.cached_runs import Logs, evaluated, files, make, without_times
from tests.support.launch import leave


class Patch:
    """Sets an attribute by its dotted name, as pytest's monkeypatch does, for good."""

    def setattr(self, name, value):
        from hf_trainplus._upstream import logger

        setattr(logger, name.rpartition(".")[2], value)


def everywhere(value):
    values = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def agreement(folder, found, logs):
    trainer = make(folder, metric=load_metric("accuracy"))
    found["first"], found["second"] = everywhere(evaluated(trainer)), everywhere(evaluated(trainer))
    found["said"] = everywhere(logs.about_the_cache)
    if torch.distributed.get_rank() == 0:
        for path in (folder / "cache").glob("*.parquet"):
            path.write_bytes(path.read_bytes()[:-9])
    torch.distributed.barrier()
    found["damaged"], found["mended"] = everywhere(evaluated(trainer)), everywhere(evaluated(trainer))
    found["files"] = everywhere(sorted(name.rpartition(".")[2] for name in files(folder)))


def of_one_process(folder, found, logs):
    found["alone"] = everywhere(evaluated(make(folder, metric=load_metric("accuracy"))))


def other_weights(folder, found, logs):
    before = len(logs.about_the_cache)
    trainer = make(folder, model=tiny.bert(seed=torch.distributed.get_rank()))
    found["other_weights"] = everywhere([evaluated(trainer)[1] for _ in range(2)])
    found["other_weights_files"] = files(folder)
    found["other_weights_said"] = everywhere(logs.about_the_cache[before:])


def other_code(folder, found, logs):
    rank = torch.distributed.get_rank()
    trainer = make(folder, metric=lambda prediction: {"x": 0.0 * rank})
    found["other_code"] = everywhere([evaluated(trainer)[1] for _ in range(2)])
    found["other_code_files"] = files(folder)


def training(folder, found, logs):
    for name in ("run", "run_again"):
        options = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2, "learning_rate": 1e-2}
        trainer = make(folder, model=tiny.bert(dropout=0.1), metric=load_metric("accuracy"), **options)
        trainer.train()
        entries = [without_times(entry) for entry in trainer.state.log_history if "eval_loss" in entry]
        found[name] = everywhere([trainer.counter.batches, entries])


if __name__ == "__main__":
    root, results, said = Path(sys.argv[1]), {}, Logs(Patch())
    for case in (agreement, other_weights, other_code, training):
        case(root / case.__name__, results, said)
    of_one_process(Path(sys.argv[2]), results, said)
    if torch.distributed.get_rank() == 0:
        print("FOUND " + json.dumps(results), flush=True)
    leave()
