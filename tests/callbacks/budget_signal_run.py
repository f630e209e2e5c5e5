"""A slow run that waits for a signal: steps of a twentieth of a second, a file that says when it is under way."""

import os
import sys
import time
from pathlib import Path

from transformers import TrainerCallback

from hf_trainplus.callbacks.budget import BudgetCallback
from tests.callbacks.budget_runs import make_trainer


class SlowSteps(TrainerCallback):
    def __init__(self, folder):
        self.folder = Path(folder)

    def on_optimizer_step(self, args, state, control, **kwargs):
        time.sleep(0.05)

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            (self.folder / f"running-{os.environ.get('RANK', '0')}").touch()


def main(folder):
    callback = BudgetCallback()
    trainer = make_trainer(
        Path(folder) / "out",
        [SlowSteps(folder), callback],
        max_steps=5000,
        eval_strategy="no",
        save_steps=5000,
        logging_steps=5000,
        rows=20_000,
        **({"ddp_backend": "gloo"} if "RANK" in os.environ else {}),
    )
    trainer.train()
    (Path(folder) / f"ended-{os.environ.get('RANK', '0')}").write_text(
        f"{trainer.state.global_step} {callback.stop_reason.value}"
    )


if __name__ == "__main__":
    main(sys.argv[1])
