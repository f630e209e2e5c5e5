"""How well a budget holds: a thousand simulated runs on an injected clock, and real ones on request.

    python tests/benchmarks/budget.py                          # simulated, about a minute
    python tests/benchmarks/budget.py --real 10 --seconds 90   # real training as well, one after the other
    python tests/benchmarks/budget.py --json

Simulated: step, evaluation and save times scatter by 20 %, in one table normally (a standard deviation of 20 %, with
no bound above), in the other evenly between 0.8 and 1.2. Each run draws its own costs: 60 to 160 steps' worth of time,
an evaluation of 0.1 to 5 % of it, a save of 0.03 to 3 %. ``within`` counts the runs that leave unused at most
max(5 %, one evaluation + one save + two steps).
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
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from hf_trainplus.budget.keeping.measured import Measured  # noqa: E402
from hf_trainplus.budget.meter import Progress  # noqa: E402
from hf_trainplus.budget.remaining import Rhythm, time_left  # noqa: E402
from tests.budget.keeping.simulation import Costs, normal_noise, simulate, uniform_noise  # noqa: E402


def draw(rng: np.random.Generator) -> tuple[float, Costs]:
    limit = 10 ** rng.uniform(1.8, 2.2)
    evaluation, save = limit * 10 ** rng.uniform(-3, -1.3), limit * 10 ** rng.uniform(-3.5, -1.5)
    every = int(rng.integers(5, max(6, int(limit / 4))))
    return limit, Costs(1.0, evaluation, save, every, startup=limit * rng.uniform(0, 0.05))


def forecast(keeper, costs, steps) -> float:
    return keeper.time_left(Progress(steps=steps), Rhythm(10**9, costs.every, costs.every)).seconds


def simulated(runs: int, seed: int) -> list[dict]:
    rows = []
    for name, noise in (("normal, sd 20 %", normal_noise), ("even, ±20 %", uniform_noise)):
        rng = np.random.default_rng(seed)
        outcomes = [simulate(*draw(rng), rng, noise, forecast) for _ in range(runs)]
        errors = [
            (run.seconds_left_at_20 - (run.end_seconds - run.seconds_at_20)) / (run.end_seconds - run.seconds_at_20)
            for run in outcomes
            if run.seconds_at_20 is not None and run.end_seconds > run.seconds_at_20
        ]
        rows.append(
            {
                "noise": name,
                "runs": runs,
                "overshoots": sum(run.overshoot > 0 for run in outcomes),
                "largest_overshoot": max(run.overshoot / run.limit_seconds for run in outcomes),
                "unused_median": statistics.median(run.unused / run.limit_seconds for run in outcomes),
                "unused_largest": max(run.unused / run.limit_seconds for run in outcomes),
                "within": sum(run.unused <= run.allowed_unused for run in outcomes),
                "time_left_error_median": statistics.median(abs(error) for error in errors),
                "time_left_bias_median": statistics.median(errors),
                "forecasts": len(errors),
            }
        )
    return rows


def until_max_steps(runs: int, seed: int) -> dict:
    """Time left of runs that end by their steps: what 20 measured steps can say about the other 480 at all."""
    rng = np.random.default_rng(seed)
    errors = []
    for _ in range(runs):
        measured = Measured()
        for _ in range(20):
            measured.add("step", {"seconds": normal_noise(rng)})
        measured.add("evaluation", {"seconds": 5 * normal_noise(rng)})
        measured.add("save", {"seconds": 2 * normal_noise(rng)})
        truth = sum(normal_noise(rng) for _ in range(480))
        truth += sum(5 * normal_noise(rng) + 2 * normal_noise(rng) for _ in range(10))
        left = time_left(measured, Rhythm(500, 50, 50), step=20)
        errors.append((left.seconds - truth) / truth)
    return {
        "runs": runs,
        "time_left_error_median": statistics.median(abs(error) for error in errors),
        "time_left_bias_median": statistics.median(errors),
        "bound_by_theory": 0.6745 * 0.2 / np.sqrt(20),
    }


def real(runs: int, seconds: float) -> list[dict]:
    """Real processes with a budget that counts from their start; ``train()`` has to return inside it."""
    rows = []
    for number in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
            command = [sys.executable, __file__, "--child", folder, "--seconds", str(seconds), "--seed", str(number)]
            began = time.monotonic()
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=ROOT)
            lasted = time.monotonic() - began
            said = json.loads([line for line in done.stdout.splitlines() if line.startswith('{"steps"')][-1])
            rows.append({"process_lasted": lasted, **said})
    return rows


def child(folder: str, seconds: float, seed: int) -> None:
    """One real run: a tiny BERT on random tokens, evaluated and saved every hundred steps."""
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from hf_trainplus import BudgetCallback
    from hf_trainplus.budget.keeping.process import process_age_seconds
    from tests.budget.costs import tiny_models

    generator = torch.Generator().manual_seed(seed)
    rows = [
        {"input_ids": ids, "labels": ids}
        for ids in torch.randint(3, tiny_models.WORDS, (4000, 64), generator=generator)
    ]
    budget = BudgetCallback({"wall_clock": seconds})
    seen: dict[str, float] = {}

    class Watch(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            left = budget.time_left(args, state)
            if left is not None and "left" not in seen:
                seen.update(left=left.seconds, at=time.monotonic())

    args = TrainingArguments(
        folder,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=64,
        num_train_epochs=1000,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=100,
        save_total_limit=1,
        logging_steps=1000,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(
        model=tiny_models.bert(), args=args, train_dataset=rows, eval_dataset=rows[:1000], callbacks=[budget, Watch()]
    )
    trainer.train()
    age, truth = process_age_seconds(), time.monotonic() - seen["at"]
    last = [entry["step"] for entry in trainer.state.log_history if "eval_loss" in entry][-1]
    print(
        json.dumps(
            {
                "steps": trainer.state.global_step,
                "evaluated": last == trainer.state.global_step,
                "saved": (Path(folder) / f"checkpoint-{trainer.state.global_step}" / "trainer_state.json").exists(),
                "returned_at": age,
                "overshoot": max(0.0, age - seconds),
                "unused": max(0.0, 1 - age / seconds),
                "time_left_error": abs(seen["left"] - truth) / truth,
            }
        )
    )


def show(result: dict) -> None:
    for row in result["simulated"]:
        print(
            f"simulated, {row['noise']}: {row['runs']} runs, overshoots {row['overshoots']}, unused median "
            f"{row['unused_median']:.2%}, largest {row['unused_largest']:.2%}, within the mark {row['within']}; "
            f"time left after 20 steps: median error {row['time_left_error_median']:.2%}, "
            f"bias {row['time_left_bias_median']:+.2%}"
        )
    steps = result["until_max_steps"]
    print(
        f"runs that end by their steps: median error {steps['time_left_error_median']:.2%} (20 steps of 20 % noise "
        f"allow {steps['bound_by_theory']:.2%}), bias {steps['time_left_bias_median']:+.2%}"
    )
    for row in result["real"]:
        print(
            f"real: train() returned at {row['returned_at']:.2f} s, overshoot {row['overshoot']:.2f} s, unused "
            f"{row['unused']:.1%}, process gone at {row['process_lasted']:.2f} s, "
            f"time left after 20 steps wrong by {row['time_left_error']:.1%}, {row['steps']} steps, last one evaluated "
            f"{row['evaluated']} and saved {row['saved']}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--real", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.seconds, options.seed)
        return
    result = {
        "simulated": simulated(options.runs, options.seed),
        "until_max_steps": until_max_steps(options.runs, options.seed),
        "real": real(options.real, options.seconds),
    }
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)


if __name__ == "__main__":
    main()
