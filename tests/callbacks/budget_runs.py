"""Small real Trainers for the tests of BudgetCallback: a linear model on eight numbers, without tokenizer or network."""

from __future__ import annotations

import time

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(rows, 8, generator=generator)
        self.y = (self.x.sum(1) > 0).long()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict:
        return {"x": self.x[index], "labels": self.y[index]}


class Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(8, 2)

    def forward(self, x, labels=None):
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Slow(TrainerCallback):
    """Moves a fake clock, or sleeps, at each event, and writes down what happened."""

    def __init__(self, clock=None, step=1.0, evaluation=0.0, save=0.0) -> None:
        self.clock, self.costs, self.events = clock, {"step": step, "evaluation": evaluation, "save": save}, []

    def _spend(self, phase: str, state) -> None:
        self.events.append((phase, state.global_step))
        if self.clock is None:
            time.sleep(self.costs[phase])
        else:
            self.clock.now += self.costs[phase]

    def on_optimizer_step(self, args, state, control, **kwargs):
        # before the step is counted
        self.events.append(("step", state.global_step + 1))
        if self.clock is None:
            time.sleep(self.costs["step"])
        else:
            self.clock.now += self.costs["step"]

    def on_evaluate(self, args, state, control, **kwargs):
        self._spend("evaluation", state)

    def on_save(self, args, state, control, **kwargs):
        self._spend("save", state)

    def steps_of(self, phase: str) -> list[int]:
        return [step for one, step in self.events if one == phase]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make_trainer(folder, callbacks, *, rows=64, model=None, trainer_class=Trainer, **options):
    """A Trainer with four rows a step; every option of TrainingArguments can be given."""
    arguments = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 16,
        "max_steps": 40,
        "eval_strategy": "steps",
        "eval_steps": 10,
        "save_strategy": "steps",
        "save_steps": 10,
        "logging_steps": 5,
        "learning_rate": 0.1,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "remove_unused_columns": False,
    }
    args = TrainingArguments(**{**arguments, **options})
    return trainer_class(
        model=model or Linear(),
        args=args,
        train_dataset=Rows(rows),
        eval_dataset=Rows(16),
        callbacks=callbacks,
    )
