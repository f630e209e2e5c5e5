"""Two ranks, several cases; every rank prints what it saw as one JSON line, on rank 0's standard output.

Run by torchrun; the first argument is a folder, the second the name of the only case to run (optional).
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import distributed

from hf_trainplus.callbacks.budget import BudgetCallback
from tests.callbacks.budget_runs import Clock, Slow, make_trainer
from tests.support.launch import leave


def gathered(value):
    everyone = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyone, value)
    return everyone


def report(case, trainer, slow, callback):
    weights = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
    saw = {
        "step": trainer.state.global_step,
        "reason": callback.stop_reason.value if callback.stop_reason else None,
        "limit": callback.stop_limit,
        "evaluations": slow.steps_of("evaluation"),
        "saves": slow.steps_of("save"),
        "rates": [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry],
        "weights": weights.double().sum().item(),
    }
    everyone = gathered(saw)
    if distributed.get_rank() == 0:
        print(json.dumps({"case": case, "ranks": everyone}), flush=True)


class RaiseAt(Slow):
    """Sends this process a signal in one step."""

    def __init__(self, *arguments, at, **costs):
        super().__init__(*arguments, **costs)
        self.at = at

    def on_optimizer_step(self, args, state, control, **kwargs):
        super().on_optimizer_step(args, state, control, **kwargs)
        if state.global_step + 1 == self.at:
            signal.raise_signal(signal.SIGUSR1)


def run(case, folder, budget=None, *, slow=None, resume=None, train=None, **options):
    clock = Clock()
    slow = slow(clock) if slow else Slow(clock)
    callback = BudgetCallback(budget, clock=clock, count_from_process_start=False, margin_seconds=0, **options)
    trainer = make_trainer(Path(folder) / case.split("-")[0], [slow, callback], ddp_backend="gloo", **(train or {}))
    trainer.train(resume_from_checkpoint=resume)
    report(case, trainer, slow, callback)


def main(folder, only=None):
    rank = int(os.environ["RANK"])
    # rank 1 is five times slower on its own clock, so only rank 1 passes the limit
    pace = {"step": 5.0 if rank else 1.0}
    cases = {
        "limit": lambda name: run(name, folder, "wall_clock=100", slow=lambda clock: Slow(clock, **pace)),
        "limit-again": lambda name: run(name, folder, "wall_clock=100", resume=True),
        "deadline": lambda name: run(
            name, folder, slow=lambda clock: Slow(clock, **pace), deadline=time.time() + 60, train={"max_steps": 200}
        ),
        "signal": lambda name: run(
            name, folder, slow=(lambda clock: RaiseAt(clock, at=7)) if rank else None, stop_signals="SIGUSR1"
        ),
        "file": lambda name: run(name, folder, stop_file=str(Path(folder) / f"stop-{rank}")),
        "rate": lambda name: run(
            name,
            folder,
            "wall_clock=100",
            slow=lambda clock: Slow(clock, **pace),
            lr_follows_budget=True,
            train={"logging_steps": 1, "max_steps": 1000, "eval_strategy": "no", "save_strategy": "no"},
        ),
    }
    distributed.init_process_group("gloo")
    if rank == 1:
        (Path(folder) / "stop-1").touch()
    for name, case in cases.items():
        if only in (None, name):
            case(name)
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
