"""What PlusTrainer costs a training that uses none of its options: own time, wall-clock beside stock, imports.

Trains Trainer and PlusTrainer side by side, in turn, and prints three findings; ``--json`` prints them as one object.

    python tests/benchmarks/overhead.py [--pairs 8] [--steps 60] [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

FORBIDDEN = ("torch", "transformers", "matplotlib", "plotly", "sqlalchemy", "datasets")


def train(trainer_class, arguments_class, steps: int) -> float:
    """Train a small model and return the seconds that it took."""
    from tests.support import tiny

    with tempfile.TemporaryDirectory() as folder:
        options = tiny.quiet(folder, max_steps=steps, per_device_train_batch_size=16, logging_steps=20)
        trainer = trainer_class(
            model(),
            arguments_class(**options),
            train_dataset=tiny.rows(256),
            data_collator=tiny.PaddingCollator(),
        )
        trainer.pop_callback("PrinterCallback")
        start = time.perf_counter()
        trainer.train()
        return time.perf_counter() - start


def model():
    """A model whose step takes some tens of milliseconds on one thread, as short as real steps get."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
    return BertForSequenceClassification(BertConfig(vocab_size=2000, **sizes))


def wall_clock(pairs: int, steps: int) -> dict[str, object]:
    """Interleave stock/ours pairs with stock/stock pairs and return the ratios."""
    from transformers import Trainer, TrainingArguments

    from hf_trainplus import PlusTrainer, PlusTrainingArguments

    for kind in ((Trainer, TrainingArguments), (PlusTrainer, PlusTrainingArguments)):
        train(*kind, steps=5)
    ours, stock = [], []
    for pair in range(pairs):
        times = {}
        order = [("stock", Trainer, TrainingArguments), ("plus", PlusTrainer, PlusTrainingArguments)]
        order.append(("again", Trainer, TrainingArguments))
        for name, trainer_class, arguments_class in order if pair % 2 == 0 else reversed(order):
            times[name] = train(trainer_class, arguments_class, steps)
        base = (times["stock"] + times["again"]) / 2
        ours.append(times["plus"] / base)
        stock.append(times["again"] / times["stock"])
    low, high = min(stock), max(stock)
    return {
        "pairs": pairs,
        "median_ratio": median(ours),
        "stock_low": low,
        "stock_high": high,
        "inside": low <= median(ours) <= high,
    }


def own_seconds_a_step(steps: int = 1000, pairs: int = 5) -> float:
    """Return the CPU time that PlusTrainer adds to a step, from steps that compute nothing, trained in turn.

    A profiler would charge the freeing of the step's tensors to whoever called the step.
    """
    import torch
    from transformers import Trainer, TrainingArguments

    from hf_trainplus import PlusTrainer, PlusTrainingArguments
    from tests.support import tiny

    class Nothing(Trainer):
        def training_step(self, *args, **kwargs):
            return torch.zeros(())

    class PlusNothing(Nothing, PlusTrainer):
        pass

    def seconds(trainer_class, arguments_class) -> float:
        with tempfile.TemporaryDirectory() as folder:
            options = tiny.quiet(folder, max_steps=steps, logging_steps=steps)
            trainer = trainer_class(
                tiny.bert(),
                arguments_class(**options),
                train_dataset=tiny.rows(64),
                data_collator=tiny.PaddingCollator(),
            )
            trainer.pop_callback("PrinterCallback")
            start = time.thread_time()
            trainer.train()
            return (time.thread_time() - start) / steps

    seconds(PlusNothing, PlusTrainingArguments)
    found = []
    for _ in range(pairs):
        found.append(seconds(PlusNothing, PlusTrainingArguments) - seconds(Nothing, TrainingArguments))
    return median(found)


def own_share(steps: int) -> dict[str, float]:
    """Return what PlusTrainer adds to a step, and as a share of the step of a small model."""
    from transformers import Trainer, TrainingArguments

    train(Trainer, TrainingArguments, 5)
    step = train(Trainer, TrainingArguments, steps) / steps
    own = own_seconds_a_step()
    return {"own_microseconds_a_step": own * 1e6, "step_milliseconds": step * 1e3, "share": own / step}


def imported(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def imports() -> dict[str, object]:
    """Say what importing costs in modules."""
    loaded = imported("import hf_trainplus")
    stock = imported("from transformers import Trainer")
    plus = imported("from transformers import Trainer\nfrom hf_trainplus import PlusTrainer")
    return {
        "forbidden_loaded": sorted(name for name in FORBIDDEN if name in loaded),
        "modules_added_by_plus_trainer": len(plus - stock),
        "added": sorted(plus - stock),
    }


def main() -> int:
    """Measure, print, and return 1 when a limit is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {"imports": imports(), "own_share": own_share(options.steps)}
    found["wall_clock"] = wall_clock(options.pairs, options.steps)
    wall, modules = found["wall_clock"], found["imports"]
    if options.json:
        print(json.dumps(found))
    else:
        own = found["own_share"]
        print(
            f"(1) time inside our code / step time: {own['own_microseconds_a_step']:.0f} us of a "
            f"{own['step_milliseconds']:.0f} ms step, {100 * own['share']:.2f} % (limit 1 %)"
        )
        print(
            f"(2) PlusTrainer / Trainer, median of {wall['pairs']} interleaved pairs: {wall['median_ratio']:.3f}; "
            f"Trainer / Trainer ranges over {wall['stock_low']:.3f}-{wall['stock_high']:.3f}"
        )
        print(
            f"(3) import hf_trainplus loads {modules['forbidden_loaded'] or 'none'} of {', '.join(FORBIDDEN)}; "
            f"PlusTrainer adds {modules['modules_added_by_plus_trainer']} modules to `from transformers import Trainer` "
            "(limit 60)"
        )
    kept = found["own_share"]["share"] <= 0.01 and wall["inside"] and not modules["forbidden_loaded"]
    return 0 if kept and modules["modules_added_by_plus_trainer"] <= 60 else 1


if __name__ == "__main__":
    raise SystemExit(main())
