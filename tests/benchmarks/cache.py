"""What the evaluation cache costs and saves: the time of every fingerprint, and a second evaluation beside stock's.

    OMP_NUM_THREADS=1 python tests/benchmarks/cache.py [--rounds 5] [--json]

400 AG News texts and the six-layer MiniLM encoder, one thread. Fingerprints are the median of ``--rounds`` after one that
warms up; their bound is the forward pass of a single batch of 32 rows, printed beside them. Stock, the cached evaluation
and stock again run in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from hf_trainplus.evaluation.cache import ResultCache, Summary
from hf_trainplus.evaluation.fingerprints import (
    DataFingerprints,
    ObjectFingerprints,
    fingerprint_model,
    fingerprint_weights,
)
from hf_trainplus.identity import Identity
from hf_trainplus.results import ExampleResults
from tests.benchmarks.evaluation import SHARED, trainer_of

REACH = 20.0
LARGE_BYTES = 2**30


def seconds_of(work: Callable[[], Any], rounds: int) -> float:
    """Return the median time of some work, after one run that warms up."""
    work()
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return median(taken)


def weighted_f1(prediction: Any) -> dict[str, float]:
    """Score as people do, to have a function whose code is fingerprinted."""
    import numpy as np
    from sklearn.metrics import f1_score

    return {"f1": f1_score(prediction.label_ids, np.argmax(prediction.predictions, -1), average="weighted")}


def fingerprints(trainer: Any, rounds: int) -> dict[str, float]:
    """Return the seconds of each fingerprint, and of the forward pass of one batch."""
    model, objects = trainer.model.eval(), ObjectFingerprints()
    dataset, data = trainer.eval_dataset, DataFingerprints(objects.of)
    batch = trainer.data_collator([dataset[row] for row in range(32)])
    large = torch.nn.Linear(2**14, LARGE_BYTES // 2**16, bias=False)

    def read_again() -> None:
        DataFingerprints(objects.of).of(dataset)

    def forward() -> None:
        with torch.no_grad():
            model(**batch)

    work = {
        "weights": lambda: fingerprint_weights(model),
        "architecture": lambda: fingerprint_model(model),
        "data, first time": read_again,
        "data, known": lambda: data.of(dataset),
        "collator and tokenizer": lambda: objects.of(trainer.data_collator),
        "metric function": lambda: objects.of(weighted_f1),
        "1 GiB of weights": lambda: fingerprint_weights(large),
        "forward pass of one batch": forward,
    }
    return {name: seconds_of(each, rounds) for name, each in work.items()}


def files(rows: int, rounds: int) -> dict[str, float]:
    """Return the seconds in which the results of so many rows are written and read, and their size."""
    values = torch.rand(rows, 2, dtype=torch.float64).numpy()
    results = ExampleResults(range(rows), values[:, 0], [1] * rows, scores={"accuracy": values[:, 1]})
    identity = Identity("w", "d", "m", "p", "fp32", "s")
    with tempfile.TemporaryDirectory() as folder:
        cache = ResultCache(folder)

        def write() -> None:
            Path(cache.path(identity)).unlink(missing_ok=True)
            cache.store(identity, results, Summary(True))

        written = seconds_of(write, rounds)
        read = seconds_of(lambda: cache.read(identity), rounds)
        return {"rows": rows, "write": written, "read": read, "bytes": Path(cache.path(identity)).stat().st_size}


def second_evaluation(rounds: int) -> dict[str, Any]:
    """Time stock, a cached evaluation and stock again, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        stock, plus = trainer_of("stock", "cache", folder), trainer_of("plus", "cache", folder)
        stock.compute_metrics = plus.compute_metrics = weighted_f1
        plus.model.load_state_dict(stock.model.state_dict())
        stock.evaluate()
        first = plus.evaluate()
        times: dict[str, list[float]] = {"stock": [], "cached": [], "again": []}
        for _ in range(rounds):
            for name, trainer in (("stock", stock), ("cached", plus), ("again", stock)):
                start = time.perf_counter()
                metrics = trainer.evaluate()
                times[name].append(time.perf_counter() - start)
                if name == "cached" and metrics["eval_loss"] != first["eval_loss"]:
                    raise RuntimeError(f"the cached loss is {metrics['eval_loss']}, the first {first['eval_loss']}")
                if name == "stock" and abs(metrics["eval_loss"] - first["eval_loss"]) > 1e-5:
                    raise RuntimeError(f"stock's loss is {metrics['eval_loss']}, ours {first['eval_loss']}")
        spread = [again / stock for again, stock in zip(times["again"], times["stock"], strict=True)]
        return {
            "stock_seconds": median(times["stock"] + times["again"]),
            "cached_seconds": median(times["cached"]),
            "cached_slowest_seconds": max(times["cached"]),
            "speedup": median(times["stock"] + times["again"]) / median(times["cached"]),
            "stock_spread": [min(spread), max(spread)],
        }


def show(found: dict[str, Any]) -> None:
    """Print what was measured as text."""
    parts, weights = found["fingerprints"], found["weight_bytes"]
    print(f"fingerprints, MiniLM ({weights / 1e6:.0f} MB of weights), 400 AG News rows, {found['threads']} thread(s)")
    for name, seconds in parts.items():
        size = {"weights": weights, "1 GiB of weights": LARGE_BYTES}.get(name)
        print(f"  {name:28} {1000 * seconds:9.2f} ms" + (f"  {size / seconds / 1e9:6.1f} GB/s" if size else ""))
    print(
        f"  whole identity {1000 * found['identity_seconds']:.1f} ms, {found['identity_share']:.2f} of one batch's pass"
    )
    for size in found["files"]:
        print(
            f"file of {size['rows']:7,} rows: written in {1000 * size['write']:.1f} ms, read in "
            f"{1000 * size['read']:.1f} ms, {size['bytes'] / 1000:.0f} kB"
        )
    second, (low, high) = found["second"], found["second"]["stock_spread"]
    print(
        f"second evaluation: stock {second['stock_seconds']:.2f} s, cached {second['cached_seconds']:.3f} s (slowest "
        f"{second['cached_slowest_seconds']:.3f}), {second['speedup']:.0f} x stock (reach {REACH:.0f}); "
        f"stock against stock {low:.2f} to {high:.2f}"
    )


def main() -> int:
    """Measure and print; 1 when the reach is missed, or when fingerprints take longer than one batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not (SHARED / "data" / "ag_news").is_dir():
        print(f"{SHARED} has no ag_news; set TRAINPLUS_SHARED")
        return 2
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of("stock", "cache", folder)
        parts = fingerprints(trainer, options.rounds)
        weight_bytes = sum(value.numel() * value.element_size() for value in trainer.model.parameters())
    whole = ("weights", "architecture", "data, known", "collator and tokenizer", "metric function")
    identity = sum(parts[name] for name in whole)
    found = {
        "threads": torch.get_num_threads(),
        "weight_bytes": weight_bytes,
        "fingerprints": parts,
        "identity_seconds": identity,
        "identity_share": identity / parts["forward pass of one batch"],
        "files": [files(rows, options.rounds) for rows in (400, 100_000)],
        "second": second_evaluation(options.rounds),
    }
    print(json.dumps(found)) if options.json else show(found)
    return 0 if found["second"]["speedup"] >= REACH and found["identity_share"] <= 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
