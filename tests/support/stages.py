"""Tiny runs of plans: what they trained on, what they logged, where they ended."""

import copy
import json
from pathlib import Path

import torch

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny

# three stages with other lengths, batches, rows, schedules, frozen layers and evaluations
THREE = {
    "stages": [
        {
            "name": "look",
            "budget": {"max_steps": 3},
            "learning_rate": 1e-2,
            "data_fraction": 0.5,
            "freeze": ["bert.embeddings.*"],
        },
        {
            "name": "tune",
            "budget": {"num_train_epochs": 1.5},
            "learning_rate": 5e-3,
            "lr_scheduler_type": "cosine",
            "warmup_steps": 2,
            "global_batch_size": 4,
            "per_device_train_batch_size": 2,
        },
        {
            "name": "finish",
            "budget": {"max_steps": 7},
            "per_device_train_batch_size": 3,
            "learning_rate": 2e-3,
            "weight_decay": 0.1,
            "max_grad_norm": 0.5,
            "eval": {"mode": "subset", "subset_size": 6, "strategy": "steps", "every": 3},
        },
    ]
}
TIMES = ("runtime", "per_second", "seconds")


class Watched(PlusTrainer):
    """Keeps the rows that it trains on, batch by batch."""

    def training_step(self, model, inputs, *args, **kwargs):
        masks = inputs["attention_mask"]
        rows = [ids[mask.bool()].tolist() for ids, mask in zip(inputs["input_ids"], masks, strict=True)]
        self.__dict__.setdefault("rows", []).append(rows)
        return super().training_step(model, inputs, *args, **kwargs)


def without(plan, *stages, **changes):
    """A copy of a plan with some of its stages, and changed settings: ``look={"learning_rate": 1}``."""
    found = copy.deepcopy(plan)
    if stages:
        found["stages"] = [stage for stage in found["stages"] if stage["name"] in stages]
    for stage in found["stages"]:
        stage.update(changes.get(stage["name"], {}))
    return found


def make(folder, plan=THREE, *, trainer=None, callbacks=(), **options):
    defaults = {"per_device_train_batch_size": 2, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps"}
    args = PlusTrainingArguments(**tiny.quiet(folder, **{**defaults, "save_steps": 100, "plan": plan, **options}))
    parts = {
        "train_dataset": tiny.rows(23),
        "eval_dataset": tiny.rows(11, seed=3),
        "data_collator": tiny.PaddingCollator(),
    }
    return Watched(tiny.bert(dropout=0.1), args, callbacks=[*callbacks], **{**parts, **(trainer or {})})


def outcome(trainer):
    """Everything of a run that a second one has to repeat, times left out."""
    logs = [
        {key: value for key, value in entry.items() if not any(word in key for word in TIMES)}
        for entry in trainer.state.log_history
    ]
    return {
        "weights": {name: value.detach().clone() for name, value in trainer.model.state_dict().items()},
        "logs": [entry for entry in logs if "train_loss" not in entry],
        "step": trainer.state.global_step,
        "best": trainer.state.best_metric,
        "optimizer": trainer.optimizer.state_dict() if trainer.optimizer is not None else None,
    }


def differences(first, second):
    """Names of what two outcomes do not share."""
    found = [name for name in first["weights"] if not torch.equal(first["weights"][name], second["weights"][name])]
    return found + [name for name in ("logs", "step", "best") if first[name] != second[name]]


def record(folder, step):
    """What a checkpoint says of its plan."""
    state = json.loads((Path(folder) / f"checkpoint-{step}" / "trainer_state.json").read_text())
    return state["stateful_callbacks"]["StageCallback"]["attributes"]["saved"]


def learning_rates(trainer):
    return [(entry["step"], entry["learning_rate"]) for entry in trainer.state.log_history if "learning_rate" in entry]


def steps_of(folder):
    return sorted(int(path.name.rpartition("-")[2]) for path in Path(folder).glob("checkpoint-*"))
