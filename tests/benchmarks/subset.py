"""Time of ``representative_subset`` on 1,000,000 rows against Arrow's dictionary-encoding plus one permutation.

    python tests/benchmarks/subset.py [--rows N] [--json]

Each figure is the best of several runs. The reach is 3 times for one column with a single label a row.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from hf_trainplus import representative_subset

REACH = 3.0
RUNS = 7
SIZES = (1_000, 0.1, 0.5)


def best_seconds(work: Callable[[], object]) -> float:
    """Shortest of several runs: what the work costs when nothing disturbs it."""
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def columns(rows: int) -> dict[str, pa.Array]:
    generator = np.random.default_rng(0)
    names = np.array(["World", "Sports", "Business", "Sci/Tech"])
    return {
        "4 names": pa.array(names[generator.integers(0, 4, rows)]),
        "150 integers": pa.array(generator.integers(0, 150, rows)),
        "2 bools": pa.array(generator.random(rows) < 0.3),
        "200,000 integers": pa.array(generator.integers(0, 200_000, rows)),
        "all names distinct": pa.array([f"id{row}" for row in range(rows)]),
    }


def measure(rows: int) -> list[dict[str, object]]:
    generator = np.random.default_rng(1)
    table = []
    for name, column in columns(rows).items():
        dataset = pa.table({"label": column, "other": np.arange(rows)})
        reference = best_seconds(lambda column=column: (column.dictionary_encode(), generator.permutation(rows)))
        for size in SIZES:
            seconds = best_seconds(
                lambda dataset=dataset, size=size: representative_subset(dataset, size, label_column="label")
            )
            ratio = seconds / reference
            table.append(
                {
                    "column": name,
                    "size": size,
                    "seconds": round(seconds, 4),
                    "reference_seconds": round(reference, 4),
                    "ratio": round(ratio, 2),
                    "reached": ratio <= REACH,
                }
            )
    return table


def main() -> int:
    """Print the table; 1 when a reach is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    table = measure(arguments.rows)
    if arguments.json:
        print(json.dumps(table, indent=1))
        return 0 if all(row["reached"] for row in table) else 1
    print(f"{arguments.rows:,} rows; reach: {REACH:g} times dictionary-encoding plus one permutation")
    print(f"{'column':<20}{'size':>8}{'subset ms':>12}{'reference ms':>14}{'times':>8}")
    for row in table:
        milliseconds = (1000 * float(str(row[key])) for key in ("seconds", "reference_seconds"))
        own, other = milliseconds
        print(f"{row['column']:<20}{row['size']:>8}{own:>12.1f}{other:>14.1f}{row['ratio']:>8}")
    return 0 if all(row["reached"] for row in table) else 1


if __name__ == "__main__":
    raise SystemExit(main())
