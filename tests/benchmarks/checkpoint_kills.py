"""Kill a training run at many points of its writing and at random moments; every trial must end as the whole run.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.checkpoint_kills [--points 50] [--moments 10] [--seed 0]

Each trial kills twice and resumes with ``resume_from_checkpoint=True``; weights, logs, learning rate and what is left
in the folder are compared. Exit code 1 when one differs.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.support.checkpoint_kills import trials


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--moments", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        whole, *found = trials(Path(folder), options.points, options.moments, options.seed)
    print(f"one run: {whole['steps']} steps, {whole['points']} points of writing, {whole['seconds']:.1f} s")
    kinds = {"points of writing": found[: options.points], "moments": found[options.points :]}
    for kind, outcomes in kinds.items():
        same = sum(not wrong for wrong in outcomes)
        print(f"killed twice at random {kind}: {same} of {len(outcomes)} trials end as the run that nobody killed")
    for wrong in filter(None, found):
        print(f"differs: {wrong}")
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
