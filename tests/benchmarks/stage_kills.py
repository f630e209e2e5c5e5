"""Kill a run of four stages twice a trial, resume it, and compare its end with the run that nobody killed.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.stage_kills [--trials 50] [--seed 0]

Kills hit random points of writing and random moments alike. Exit code 1 when weights, logs, step, best metric or the
recorded reason of one trial differ.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.support.stage_kills import trials


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        whole, *found = trials(Path(folder), options.trials, options.seed)
    print(f"one run: {whole['step']} steps, {whole['points']} points of writing, {whole['seconds']:.1f} s")
    where = Counter(place.partition(" step")[0] for places, _ in found for place in places)
    print("newest checkpoint at the kills: " + ", ".join(f"{place} {count}" for place, count in where.most_common()))
    same = sum(not wrong for _, wrong in found)
    print(f"{sum(where.values())} kills: {same} of {len(found)} trials end as the run that nobody killed")
    for places, wrong in found:
        if wrong:
            print(f"differs in {', '.join(wrong)} after {', '.join(places)}")
    return 0 if same == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
