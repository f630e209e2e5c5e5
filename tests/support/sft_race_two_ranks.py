"""Race and full evaluation of an SFTTrainer on two ranks; rank 0 prints one JSON line."""

import random
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from trl import SFTConfig, SFTTrainer  # noqa: E402

from hf_trainplus import PlusTrainer, PlusTrainingArguments  # noqa: E402
from hf_trainplus.training.racing.session import RaceLimits  # noqa: E402
from tests.support import tiny  # noqa: E402
from tests.support.launch import print_everywhere  # noqa: E402
from tests.training.test_other_trainers import word_tokenizer  # noqa: E402

STEPS, ROWS = 6, 241


class PlusSFTTrainer(SFTTrainer, PlusTrainer):
    """Another trainer over ours."""


@dataclass
class Args(SFTConfig, PlusTrainingArguments):
    """Its arguments; a checkpoint pickles them, so that they are no class of a function."""


def rows():
    """Texts of unequal length, their number odd, so that one rank has a row less."""
    draw = random.Random(0)  # noqa: S311
    words = [f"w{k}" for k in range(4, 34)]
    return Dataset.from_list([{"text": " ".join(draw.choices(words, k=draw.randint(3, 12)))} for _ in range(ROWS)])


def train(folder, mode):
    options = {"eval_strategy": "steps", "eval_steps": 1, "max_steps": STEPS, "learning_rate": 5e-2}
    options |= {"load_best_model_at_end": True, "per_device_eval_batch_size": 20, "eval_mode": mode}
    options |= {"bf16": False, "gradient_checkpointing": False}
    args, data = Args(**tiny.quiet(folder / mode, **options)), rows()
    tools = {"train_dataset": data, "eval_dataset": data, "processing_class": word_tokenizer()}
    trainer = PlusSFTTrainer(model=tiny.llama(), args=args, **tools)
    trainer._scheduled.race.limits = RaceLimits(min_rows=100, min_seconds=0.0)
    trainer.train()
    return trainer


def main():
    full, race = (train(Path(sys.argv[1]), mode) for mode in ("full", "race"))
    found = {
        name: [one.state.best_global_step, one.state.best_metric] for name, one in (("full", full), ("race", race))
    }
    found["pairs"] = race._scheduled.race.session.race.state.pairs
    theirs, ours = full.model.state_dict(), race.model.state_dict()
    found["weights_equal"] = all(torch.equal(value, ours[name]) for name, value in theirs.items())
    print_everywhere(found)


if __name__ == "__main__":
    main()
