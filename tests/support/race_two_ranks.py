"""Race and full evaluation on two ranks; rank 0 prints one JSON line."""

import json
import sys
from pathlib import Path

import torch

from tests.support.launch import leave
from tests.training.test_race import make


def main():
    found = {}
    for mode in ("full", "race"):
        trainer = make(Path(sys.argv[1]) / mode, mode, rows=240, max_steps=6, per_device_eval_batch_size=20)
        trainer.train()
        found[mode] = [trainer.state.best_global_step, trainer.state.best_metric]
    session = trainer._scheduled.race.session
    found["pairs"] = session.race.state.pairs
    everywhere = [None] * 2
    torch.distributed.all_gather_object(everywhere, json.dumps(found))
    found["ranks_agree"] = everywhere[0] == everywhere[1]
    print("FOUND " + json.dumps(found), flush=True)
    leave()


if __name__ == "__main__":
    main()
