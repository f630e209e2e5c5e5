"""Runs that are resumed at a step and compared, bit for bit, with the run that nothing interrupted.

As a script (under torchrun), with a folder: prints on rank 0 one line a case and step, ``same`` or what differs.
"""

import math
import shutil
import sys
from pathlib import Path

import torch
from transformers import TrainerCallback

from hf_trainplus import BudgetCallback, PatienceCallback, PlusTrainer, PlusTrainingArguments, load_metric
from hf_trainplus.training.racing.session import RaceLimits
from tests.support import tiny
from tests.support.launch import leave

TIMES = ("runtime", "per_second", "seconds", "time_left", "budget_used")
EVERY_STEP = {
    "max_steps": 10,
    "per_device_train_batch_size": 2,
    "save_strategy": "steps",
    "save_steps": 1,
    "logging_steps": 3,
    "learning_rate": 1e-2,
    "eval_strategy": "steps",
    "eval_steps": 2,
}
CASES = {
    "full": {"eval_on_start": True, "metric_for_best_model": "accuracy", "load_best_model_at_end": True},
    "accumulation": {"gradient_accumulation_steps": 3, "lr_scheduler_type": "cosine", "warmup_steps": 3},
    "subset": {"eval_mode": "subset", "eval_subset_size": 6, "logging_steps": 4},
    "race": {"eval_mode": "race", "metric_for_best_model": "loss", "rows": 160},
    "adaptive": {
        "eval_schedule": "adaptive",
        "eval_min_steps": 1,
        "eval_max_steps": 4,
        "metric_for_best_model": "loss",
    },
    "patience": {"patience": 2, "metric_for_best_model": "loss", "learning_rate": 0.2},
    "plateau": {"lr_scheduler_type": "reduce_lr_on_plateau", "metric_for_best_model": "loss", "learning_rate": 0.1},
    "epochs": {"eval_strategy": "epoch", "logging_strategy": "epoch", "max_steps": -1, "num_train_epochs": 2},
    "meters": {"budget": "max_steps=100,tokens=1e9", "include_num_input_tokens_seen": "all"},
    "logs_before_saves": {"logging_steps": 4, "save_steps": 5, "logging_first_step": True},
    "greatest_step_in_mid_epoch": {"eval_strategy": "epoch", "max_steps": 5, "logging_steps": 2},
}
RANK_CASES = {"full": (3,), "accumulation": (5,), "epochs": (4,), "race": (5,)}


class Counts(TrainerCallback):
    """Keeps how many batches have been trained on at the end of each step."""

    def __init__(self, seen):
        self.seen, self.at = seen, {}

    def on_step_end(self, args, state, control, **kwargs):
        self.at[state.global_step] = len(self.seen)


class Model(torch.nn.Module):
    """A tiny classifier that writes down the rows that it is trained on."""

    def __init__(self, seen):
        super().__init__()
        self.inner, self.seen = tiny.bert(dropout=0.1), seen

    def forward(self, input_ids, attention_mask, labels=None):
        if self.training:
            self.seen.append(input_ids.tolist())
        return self.inner(input_ids=input_ids, attention_mask=attention_mask, labels=labels)


def make(folder, case, callbacks=(), trainer_class=PlusTrainer, **more):
    options = {**EVERY_STEP, **CASES[case], **more}
    rows, patience = options.pop("rows", 12), options.pop("patience", None)
    seen = []
    counts = Counts(seen)
    callbacks = [*callbacks, counts, *([PatienceCallback(patience)] if patience else [])]
    trainer = trainer_class(
        Model(seen),
        PlusTrainingArguments(**tiny.quiet(folder, **options)),
        train_dataset=tiny.rows(15),
        eval_dataset=tiny.rows(rows, seed=1),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=load_metric("accuracy"),
        callbacks=callbacks,
    )
    trainer.seen, trainer.counts = seen, counts.at
    if options.get("eval_mode") == "race":
        trainer._scheduled.race.limits = RaceLimits(min_rows=100, min_seconds=0.0)
    return trainer


def logs(trainer):
    kept = []
    for entry in trainer.state.log_history:
        kept.append({key: value for key, value in entry.items() if not any(time in key for time in TIMES)})
    return kept


def meters(trainer):
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, BudgetCallback):
            spent = callback.saved["keeper"]["meter"]
            return {key: value for key, value in spent.items() if key in ("steps", "examples", "tokens", "epochs")}
    return None


def outcome(trainer, output):
    return {
        "weights": {
            name: value.clone() for name, value in trainer.accelerator.unwrap_model(trainer.model).state_dict().items()
        },
        "logs": logs(trainer),
        "train_loss": output.training_loss,
        "best": (trainer.state.best_global_step, trainer.state.best_metric),
        "steps": trainer.state.global_step,
        "tokens": trainer.state.num_input_tokens_seen,
        "learning_rate": trainer.lr_scheduler.get_last_lr(),
        "meters": meters(trainer),
    }


def same(key, one, other):
    """Say whether two logged values are equal.

    After a resume a race reads the winner's rows in other batches, and on some processors a row's float32 loss then
    differs in its last bit.
    """
    if key.startswith("eval_") and isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-7)
    return one == other


def same_logs(whole, resumed):
    return len(whole) == len(resumed) and all(
        one.keys() == other.keys() and all(same(key, one[key], other[key]) for key in one)
        for one, other in zip(whole, resumed, strict=True)
    )


def differences(whole, resumed):
    found = [name for name in whole if name not in ("weights", "rows", "logs") and whole[name] != resumed[name]]
    found += [] if same_logs(whole["logs"], resumed["logs"]) else ["logs"]
    return found + [name for name, value in whole["weights"].items() if not value.equal(resumed["weights"][name])]


def copy_up_to(source, target, step):
    """Copy a run's folder as it was when the checkpoint of ``step`` had been written."""
    shutil.copytree(source, target)
    for folder in target.glob("checkpoint-*"):
        if int(folder.name.split("-")[1]) > step:
            shutil.rmtree(folder)


def compare(case, folder, steps, **more):
    """Train once, resume at each of ``steps`` that has a checkpoint; return the steps taken and what differs."""
    trainer = make(folder / "whole", case, **more)
    whole, rows = outcome(trainer, trainer.train()), trainer.seen
    found = {}
    for step in steps:
        if not (folder / "whole" / f"checkpoint-{step}").is_dir():
            continue
        copy_up_to(folder / "whole", folder / f"resumed-{step}", step)
        resumed = make(folder / f"resumed-{step}", case, **more)
        found[step] = differences(whole, outcome(resumed, resumed.train(resume_from_checkpoint=True)))
        if resumed.seen != rows[trainer.counts[step] :]:
            found[step].append("rows")
    return whole, found


def resume_on_ranks(folder, case, steps):
    """The same on several ranks; yields for each step what every rank finds."""
    distributed = torch.distributed
    trainer = make(folder / "whole", case)
    whole, rows = outcome(trainer, trainer.train()), trainer.seen
    for step in steps:
        target = folder / f"resumed-{step}"
        if distributed.get_rank() == 0:
            copy_up_to(folder / "whole", target, step)
        distributed.barrier()
        resumed = make(target, case)
        found = differences(whole, outcome(resumed, resumed.train(resume_from_checkpoint=True)))
        found += [] if resumed.seen == rows[trainer.counts[step] :] else ["rows"]
        everywhere = [None] * distributed.get_world_size()
        distributed.all_gather_object(everywhere, found)
        yield step, everywhere


if __name__ == "__main__":
    for name, at in RANK_CASES.items():
        for where, told in resume_on_ranks(Path(sys.argv[1]) / name, name, at):
            if torch.distributed.get_rank() == 0:
                print(f"{name} {where} {told}", flush=True)
    leave()
