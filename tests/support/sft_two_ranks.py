"""Evaluate SFTTrainer's seven rows on two ranks; rank 0 prints ``equal N`` when the loss is token-exact."""

import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")

from tests.support.launch import leave  # noqa: E402
from tests.training.test_other_trainers import brute_force, sft_trainer  # noqa: E402


def main():
    trainer = sft_trainer(Path(sys.argv[1]), eval_strategy="steps", eval_steps=1)
    trainer.train()
    metrics = trainer.evaluate()
    expected = brute_force(trainer)
    equal = abs(metrics["eval_loss"] - expected) < 1e-5
    print(f"{'equal' if equal else (metrics['eval_loss'], expected)} {metrics['eval_examples']}", flush=True)
    leave()


if __name__ == "__main__":
    main()
