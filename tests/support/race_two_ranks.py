"""Race and full evaluation on two ranks, of a loss or of generated ids; rank 0 prints one JSON line."""

import sys
from pathlib import Path

from tests.support.launch import print_everywhere
from tests.training.racing import test_generated
from tests.training.test_race import make


def trainer_of(folder, mode, kind):
    if kind == "generated":
        return test_generated.make(folder, mode, max_steps=20, per_device_eval_batch_size=20)
    return make(folder, mode, rows=240, max_steps=6, per_device_eval_batch_size=20)


def main():
    found = {}
    for mode in ("full", "race"):
        trainer = trainer_of(Path(sys.argv[1]) / mode, mode, sys.argv[2])
        trainer.train()
        found[mode] = [trainer.state.best_global_step, trainer.state.best_metric]
    session = trainer._scheduled.race.session
    found["pairs"] = session.race.state.pairs
    print_everywhere(found)


if __name__ == "__main__":
    main()
