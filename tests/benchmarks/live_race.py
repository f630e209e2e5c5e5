"""What a race costs in a real training: stock ``Trainer`` against ``PlusTrainer(eval_mode="race")`` on AG News.

A two-layer BERT is trained from scratch, tokenizer included, once with each trainer, from the same weights over the
same batches, on one thread. Printed are best checkpoint, stop step and final weights, and what evaluation took in
wall-clock and in CPU time of this process (which does not grow when others use the machine): every evaluation, the
keeping and loading of candidates, the race's part of each checkpoint, and the winner's full pass at the end.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.live_race [--evaluations 40] [--case loss accuracy patience] [--json]

Data are read from ``$TRAINPLUS_SHARED/data/ag_news``. Exit code 1 when a reach is missed, 2 without data.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from rich.console import Console
from rich.table import Table
from transformers import Trainer

from tests.benchmarks.live_runs import DATA, News, Run, Setting, train, warm_up


@dataclass(frozen=True)
class Case:
    """What is decided, and what must be reached; ``reach`` is the largest share of stock's evaluation time."""

    metric: str
    patience: int | None
    reach: float | None


CASES = {
    "loss": Case("loss", None, 1 / 6),
    "accuracy": Case("accuracy", None, 1 / 2),
    "patience": Case("loss", 10, None),
}


@dataclass(frozen=True)
class Row:
    """A race beside stock; shares are those of stock's evaluations in the same run."""

    case: str
    stock: Run
    race: Run
    full: Run | None
    same_best: bool
    same_stop: bool
    same_weights: bool
    wall_share: float
    cpu_share: float
    train_cpu_share: float
    reach: float | None

    @property
    def reached(self) -> bool:
        """Whether the decisions are the same and the time is within the reach."""
        same = self.same_best and self.same_stop and self.same_weights
        return same and (self.reach is None or self.wall_share <= self.reach)


def compare(
    name: str,
    case: Case,
    news: News,
    setting: Setting,
    *,
    with_full: bool = False,
    prepare: Callable[[Trainer], object] = lambda trainer: None,
) -> Row:
    """Train stock and race; where their best differ, a token-exact evaluation of all rows says which is right.

    Args:
        name: of the case.
        case: what decides.
        news: the data.
        setting: sizes.
        with_full: evaluate all rows with ``PlusTrainer`` too, also where the best are the same.
        prepare: called with the racing trainer before it trains.
    """
    stock = train("stock", case.metric, case.patience, news, setting)
    race = train("race", case.metric, case.patience, news, setting, prepare)
    same_best = stock.best_step == race.best_step
    full = train("full", case.metric, case.patience, news, setting) if with_full or not same_best else None
    # what stock's training took beyond its evaluations is what the race's must take too: the rest is evaluation
    beyond = stock.train_cpu_seconds - stock.cpu_seconds
    return Row(
        case=name,
        stock=stock,
        race=race,
        full=full,
        same_best=same_best,
        same_stop=stock.stop_step == race.stop_step,
        same_weights=stock.weights == race.weights,
        wall_share=race.wall_seconds / stock.wall_seconds,
        cpu_share=race.cpu_seconds / stock.cpu_seconds,
        train_cpu_share=(race.train_cpu_seconds - beyond) / stock.cpu_seconds,
        reach=case.reach,
    )


def as_json(rows: list[Row], setting: Setting) -> str:
    """Return the rows and their setting as one JSON object."""
    found = [{**asdict(row), "reached": row.reached} for row in rows]
    return json.dumps({"setting": asdict(setting), "rows": found})


_COLUMNS = ("case", "trainer", "best", "stop", "rows", "wall s", "cpu s", "of stock", "cpu", "same", "reach", "")


def table_of(rows: list[Row]) -> Table:
    """Return one line a training."""
    table = Table(title="evaluation of a live training")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in ("case", "trainer", "same", "reach", "") else "right")
    for row in rows:
        for run in (row.stock, row.race, row.full):
            if run is not None:
                table.add_row(*_cells(row, run), end_section=run is (row.full or row.race))
    return table


def _cells(row: Row, run: Run) -> list[str]:
    cells = [row.case, run.trainer, str(run.best_step), str(run.stop_step), f"{run.rows:,}"]
    cells += [f"{run.wall_seconds:.1f}", f"{run.cpu_seconds:.1f}"]
    cells += [f"{run.wall_seconds / row.stock.wall_seconds:.3f}", f"{run.cpu_seconds / row.stock.cpu_seconds:.3f}"]
    if run is not row.race:
        return [*cells, "", "", ""]
    same = [name for name in ("best", "stop", "weights") if getattr(row, f"same_{name}")]
    limit = "" if row.reach is None else f"<= {row.reach:.3f}"
    return [*cells, ", ".join(same), limit, "yes" if row.reached else "NO"]


def _check_line(row: Row) -> str:
    return (
        f"{row.race.evaluations} evaluations, {row.race.reloads} loads; by the CPU time of the whole trainings the race's "
        f"evaluations took {row.train_cpu_share:.3f} of stock's\n"
    )


def main() -> int:
    """Train, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES), help="what to measure")
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--train-rows", type=int, default=5000)
    parser.add_argument("--eval-rows", type=int, default=7600)
    parser.add_argument("--seed", type=int, default=0, help="of weights, order of batches and the race's order of rows")
    parser.add_argument("--with-full", action="store_true", help="measure PlusTrainer(eval_mode='full') too")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    given = parser.parse_args()
    if not DATA.is_dir():
        print(f"no AG News in {DATA}; set TRAINPLUS_SHARED", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    setting = Setting(given.evaluations, given.train_rows, given.eval_rows, seed=given.seed)
    news = News.read(setting)
    warm_up(news)
    rows = []
    for name in given.case:
        rows.append(compare(name, CASES[name], news, setting, with_full=given.with_full))
        Console(width=140, stderr=given.json).print(table_of(rows[-1:]), _check_line(rows[-1]), sep="")
    if given.json:
        print(as_json(rows, setting))
    return 0 if all(row.reached for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
