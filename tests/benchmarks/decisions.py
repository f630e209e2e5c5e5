"""What decisions cost: policies of evaluation on recorded runs, and the time of the race's engine.

Run it with ``python -m tests.benchmarks.decisions [--seeds 20] [--json] [--traces FOLDER]``; it prints a table, or one
JSON object. Recorded runs are read from ``$TRAINPLUS_SHARED/traces``. It is no test: its figures depend on the traces.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from hf_trainplus.decisions.race import Race, RaceConfig, drive
from hf_trainplus.decisions.replay import METRICS, ReplayDriver, ReplayOptions, ReplayTrace, replay

_SHARED = Path(os.environ.get("TRAINPLUS_SHARED", Path(__file__).resolve().parents[2] / "../shared"))


@dataclass(frozen=True)
class Row:
    """One policy on one trace, over all seeds; shares in [0, 1], regret in standard errors of the full-set metric."""

    trace: str
    metric: str
    policy: str
    cost: float
    same_best: float
    same_stop: float
    largest_regret_se: float
    false_new_best: float
    reloads: float
    seconds: float
    reach: str
    reached: bool | None


POLICIES: tuple[tuple[str, str, dict[str, float | int]], ...] = (
    ("race", "race", {}),
    ("race, patience 5", "race", {"patience": 5}),
    ("race, patience 10", "race", {"patience": 10}),
    ("race, tolerance 0.25", "race", {"tolerance": 0.25}),
    ("race, tolerance 0.5", "race", {"tolerance": 0.5}),
    ("race, strict", "race", {"strict": True}),
    ("race, live only", "race", {"reload": False}),
    ("random 10 %", "subset", {"fraction": 0.1}),
    ("random 30 %", "subset", {"fraction": 0.3}),
    ("adaptive interval", "adaptive", {}),
)

# cost that the exact race must stay under: a trace's own, or the average over the traces
_TRACE_COST = {
    ("ag_news_s0", "loss"): 0.10,
    ("ag_news_s0", "error"): 0.45,
    ("trec6_s0", "error"): 0.55,
    ("cola_s0", "error"): 1.0,
}
_AVERAGE_COST = {("race", "loss"): 0.28, ("race, tolerance 0.25", "loss"): 0.22, ("race, tolerance 0.5", "error"): 0.45}


def measure(trace: ReplayTrace, name: str, metric: str, label: str, policy: str, options: dict, seeds: int) -> Row:
    """Replay one policy with each seed."""
    runs = [replay(trace, policy, metric=metric, options=ReplayOptions(seed=seed, **options)) for seed in range(seeds)]
    cost = float(np.mean([run.cost for run in runs]))
    same_best = float(np.mean([run.best_index == run.stock_best_index for run in runs]))
    same_stop = float(np.mean([run.stop_index == run.stock_stop_index for run in runs]))
    regret = max(run.regret_se for run in runs)
    reach, reached = _judge(name, metric, label, cost, same_best, same_stop, regret)
    return Row(
        name,
        metric,
        label,
        cost,
        same_best,
        same_stop,
        regret,
        float(np.mean([run.false_new_best for run in runs])),
        float(np.mean([run.reloads for run in runs])),
        float(np.mean([run.seconds for run in runs])),
        reach,
        reached,
    )


def _judge(name, metric, label, cost, same_best, same_stop, regret):
    if label == "race":
        limit = _TRACE_COST.get((name, metric))
        text = "same best" + (f", cost <= {100 * limit:.0f} %" if limit else "")
        return text, same_best == 1 and (limit is None or cost <= limit)
    if label.startswith("race, patience"):
        return "same stop", same_best == 1 and same_stop == 1
    if label.startswith("race, tolerance"):
        allowed = float(label.rsplit(" ", 1)[1])
        return f"regret <= {allowed:g} SE", regret <= allowed
    return "", None


def averages(rows: list[Row]) -> list[Row]:
    """Return the average over the traces of each policy and metric."""
    found = []
    for metric in METRICS:
        for label, _, _ in POLICIES:
            group = [row for row in rows if row.metric == metric and row.policy == label]
            limit = _AVERAGE_COST.get((label, metric))
            cost = float(np.mean([row.cost for row in group]))
            found.append(
                Row(
                    "average",
                    metric,
                    label,
                    cost,
                    float(np.mean([row.same_best for row in group])),
                    float(np.mean([row.same_stop for row in group])),
                    max(row.largest_regret_se for row in group),
                    float(np.mean([row.false_new_best for row in group])),
                    float(np.mean([row.reloads for row in group])),
                    float(np.mean([row.seconds for row in group])),
                    f"cost <= {100 * limit:.0f} %" if limit else "",
                    cost <= limit if limit else None,
                )
            )
    return found


def engine_speed(size: int = 100_000, evaluations: int = 40) -> dict[str, float]:
    """Time of the engine a decision, the driver's answers apart, over the time of one ``argsort`` of N values.

    Each is the least of several, since other work on the machine only adds.
    """
    rng = np.random.default_rng(0)
    values = rng.random(size)
    trace = _large_trace(rng, size, evaluations)
    sort_seconds = min(_timed(lambda: np.argsort(values)) for _ in range(15))
    found = {"argsort_seconds": sort_seconds}
    for metric in METRICS:
        seconds = min(_race_seconds(trace, metric) for _ in range(3)) / evaluations
        found[f"{metric}_seconds"] = seconds
        found[f"{metric}_over_argsort"] = seconds / sort_seconds
    return found


def _large_trace(rng, size: int, evaluations: int) -> ReplayTrace:
    ease, drift, losses = rng.normal(0.8, 1.2, size), np.zeros(size), []
    for index in range(evaluations):
        drift += rng.normal(0, 0.15, size) / np.sqrt(index + 1)
        place = 1 - np.exp(-6 * index / evaluations)
        losses.append(np.logaddexp(0, np.log(3) - place * (1.5 + (1 + 1.5 * index / evaluations) * ease) - drift))
    loss = np.stack(losses)
    return ReplayTrace(loss, np.arange(1, evaluations + 1), (loss < np.log(2)) * 1.0)


def _race_seconds(trace: ReplayTrace, metric: str) -> float:
    driver = _TimedDriver(trace)
    race = Race(trace.metric(metric), trace.size, RaceConfig())
    start = time.perf_counter()
    for index in range(len(trace.step)):
        drive(race.observe(index), driver)
    drive(race.finish(live=len(trace.step) - 1), driver)
    return time.perf_counter() - start - driver.seconds


class _TimedDriver(ReplayDriver):
    seconds = 0.0

    def evaluate(self, command):
        start = time.perf_counter()
        answer = super().evaluate(command)
        self.seconds += time.perf_counter() - start
        return answer


def _timed(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def table_of(rows: list[Row]) -> Table:
    """Return the rows as a table."""
    table = Table(title="decisions on recorded runs")
    for column in ("trace", "metric", "policy", "cost", "same best", "same stop", "regret", "loads", "reach", ""):
        table.add_column(column, justify="right" if column in ("cost", "regret", "loads") else "left")
    for row in rows:
        verdict = "" if row.reached is None else "yes" if row.reached else "NO"
        table.add_row(
            row.trace,
            row.metric,
            row.policy,
            f"{100 * row.cost:.1f} %",
            f"{row.same_best:.2f}",
            f"{row.same_stop:.2f}",
            f"{row.largest_regret_se:.3f}",
            f"{row.reloads:.0f}",
            row.reach,
            verdict,
        )
    return table


def main() -> int:
    """Measure and print; exit code 1 when a reach is missed, 2 without traces."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="sampling seeds a policy")
    parser.add_argument("--traces", type=Path, default=_SHARED / "traces", help="folder of .npz traces")
    parser.add_argument("--policy", default="", help="measure only policies whose name contains this")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    given = parser.parse_args()
    paths = sorted(given.traces.glob("*.npz"))
    if not paths:
        print(f"no .npz traces in {given.traces}; name a folder with --traces", file=sys.stderr)
        return 2
    rows = []
    for path in paths:
        trace = ReplayTrace.load(path)
        for metric in METRICS:
            for label, policy, options in POLICIES:
                if given.policy in label:
                    seeds = 1 if policy == "adaptive" else given.seeds
                    rows.append(measure(trace, path.stem, metric, label, policy, options, seeds))
    if not given.policy:
        rows += averages(rows)
    speed = engine_speed()
    quick = max(speed["loss_over_argsort"], speed["error_over_argsort"]) <= 10
    if given.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "engine": speed, "engine_reached": quick}))
    else:
        console = Console(width=140)
        console.print(table_of(rows))
        for metric in METRICS:
            console.print(f"engine, {metric}: {speed[f'{metric}_over_argsort']:.1f} x argsort of 100,000 values")
    missed = [row for row in rows if row.reached is False]
    return 1 if missed or not quick else 0


if __name__ == "__main__":
    sys.exit(main())
