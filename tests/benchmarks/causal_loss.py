"""Peak memory and time of a causal language model's evaluation loss: Trainer's own step against the one without logits.

    OMP_NUM_THREADS=1 python tests/benchmarks/causal_loss.py
    OMP_NUM_THREADS=1 python tests/benchmarks/causal_loss.py --width 768 --rows 8 --json

Memory is the growth of the resident peak over just before the batch, each in a process of its own; time is the median
of interleaved pairs in one process, with the spread of stock against stock beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as tf

from hf_trainplus.evaluation.chunked_causal import ChunkedCausalLoss
from hf_trainplus.evaluation.losses import batch_loss

ROOT = Path(__file__).resolve().parents[2]
MEBIBYTE = 1 << 20


def main() -> None:
    """Measure, and print a table or one line of JSON."""
    options = _arguments()
    if options.child:
        print(json.dumps(_MEASURES[options.child](options)))
        return
    stock, chunked = (_in_child(f"memory-{name}", options) for name in ("stock", "chunked"))
    figures = _in_child("time", options) | {
        "stock_peak_mib": stock["peak_mib"],
        "chunked_peak_mib": chunked["peak_mib"],
        "peak_ratio": chunked["peak_mib"] / stock["peak_mib"],
        "loss_difference": abs(stock["loss"] - chunked["loss"]),
    }
    print(json.dumps(figures) if options.json else _table(options, figures))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=50_000)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=_MEASURES, help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_child(measure: str, options: argparse.Namespace) -> dict[str, float]:
    sizes = ("vocabulary", "tokens", "rows", "width", "layers", "pairs")
    arguments = [f"--{name}={getattr(options, name)}" for name in sizes]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, __file__, "--child", measure, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _model_and_batch(options: argparse.Namespace) -> tuple[Any, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    config = tf.LlamaConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.width,
        intermediate_size=4 * options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=max(1, options.width // 64),
        max_position_embeddings=options.tokens,
    )
    ids = torch.randint(3, options.vocabulary, (options.rows, options.tokens))
    return tf.LlamaForCausalLM(config).eval(), {"input_ids": ids, "labels": ids}


def _steps(model: Any) -> dict[str, Callable[[dict[str, torch.Tensor]], float]]:
    args = tf.TrainingArguments(tempfile.mkdtemp(), report_to=[], use_cpu=True, disable_tqdm=True)
    trainer, loss = tf.Trainer(model, args), ChunkedCausalLoss()

    def chunked(inputs: dict[str, torch.Tensor]) -> float:
        losses = loss.example_losses(model, inputs)
        if losses is None:
            raise RuntimeError(f"the loss without logits was refused: {loss.reason}")
        return float(batch_loss(losses))

    return {
        "stock": lambda inputs: float(trainer.prediction_step(model, dict(inputs), prediction_loss_only=True)[0]),
        "chunked": chunked,
    }


def _measure_memory(options: argparse.Namespace, name: str) -> dict[str, float]:
    model, inputs = _model_and_batch(options)
    step = _steps(model)[name]
    step({key: value[:1, :16] for key, value in inputs.items()})
    # Linux resets the recorded peak of the resident size to its present value.
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak_bytes()
    loss = step(inputs)
    return {"peak_mib": (_peak_bytes() - before) / MEBIBYTE, "loss": loss}


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024


def _measure_time(options: argparse.Namespace) -> dict[str, float]:
    model, inputs = _model_and_batch(options)
    steps = _steps(model)
    for step in steps.values():
        step(inputs)
    seconds: dict[str, list[float]] = {"stock": [], "chunked": [], "again": []}
    for _ in range(options.pairs):
        for name, taken in seconds.items():
            start = time.perf_counter()
            steps["stock" if name == "again" else name](inputs)
            taken.append(time.perf_counter() - start)
    stock_against_stock = [a / b for a, b in zip(seconds["again"], seconds["stock"], strict=True)]
    pairs = [a / b for a, b in zip(seconds["chunked"], seconds["stock"], strict=True)]
    return {
        "stock_seconds": statistics.median(seconds["stock"]),
        "chunked_seconds": statistics.median(seconds["chunked"]),
        "time_ratio": statistics.median(pairs),
        "stock_against_stock_low": min(stock_against_stock),
        "stock_against_stock_high": max(stock_against_stock),
    }


_MEASURES: dict[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "memory-stock": lambda options: _measure_memory(options, "stock"),
    "memory-chunked": lambda options: _measure_memory(options, "chunked"),
    "time": _measure_time,
}


def _table(options: argparse.Namespace, figures: dict[str, float]) -> str:
    low, high = figures["stock_against_stock_low"], figures["stock_against_stock_high"]
    return "\n".join(
        [
            f"{options.rows} rows of {options.tokens} tokens, vocabulary {options.vocabulary}, width {options.width}, "
            f"{options.layers} layers, {torch.get_num_threads()} thread(s)",
            f"{'':10} {'peak growth':>12} {'seconds':>9}",
            f"{'stock':10} {figures['stock_peak_mib']:8.0f} MiB {figures['stock_seconds']:9.2f}",
            f"{'chunked':10} {figures['chunked_peak_mib']:8.0f} MiB {figures['chunked_seconds']:9.2f}",
            f"{'ratio':10} {figures['peak_ratio']:12.2f} {figures['time_ratio']:9.2f}   "
            f"(stock against stock {low:.2f} to {high:.2f})",
            f"losses differ by {figures['loss_difference']:.1e}",
        ]
    )


if __name__ == "__main__":
    main()
