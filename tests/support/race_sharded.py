"""Race and full evaluation on two ranks with sharded weights, which a race never loads again.

torchrun --nproc_per_node 2 tests/support/race_sharded.py FOLDER fsdp2|zero2|zero3 loss|accuracy
"""

import json
import os
import sys
from pathlib import Path

import torch

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from tests.support import tiny
from tests.support.launch import print_everywhere
from tests.support.sharded_checkpoints import KINDS, ShardedOnCPU, shards
from tests.training.test_race import SMALL, learnable

STEPS, ROWS = 8, 400


class ShardedBert(ShardedOnCPU):
    layer = "BertLayer"


def make(folder, kind, mode, metric, **options):
    arguments = {
        "max_steps": STEPS,
        "learning_rate": 2e-2,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 50,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "save_strategy": "steps",
        "save_steps": STEPS // 2,
        "load_best_model_at_end": True,
        "metric_for_best_model": metric,
        "eval_mode": mode,
        "ddp_backend": "gloo",
        **KINDS[kind],
        **options,
    }
    trainer = (ShardedBert if kind == "fsdp2" else PlusTrainer)(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, **arguments)),
        train_dataset=learnable(64, seed=1),
        eval_dataset=learnable(ROWS),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=None if metric == "loss" else load_metric(metric),
    )
    trainer._scheduled.race.limits = SMALL
    return trainer


def own_part(trainer):
    """This rank's weights; ZeRO-3 holds them in a tensor beside an empty parameter."""
    parameters = dict(trainer.model.named_parameters())
    if all(hasattr(value, "ds_tensor") for value in parameters.values()):
        return {name: value.ds_tensor.detach().clone() for name, value in parameters.items()}
    return shards(trainer)


def best_of(trainer):
    folder = trainer.state.best_model_checkpoint
    return [trainer.state.best_global_step, trainer.state.best_metric, os.path.basename(folder), os.path.isdir(folder)]


def main(root, kind, metric):
    found, held = {}, {}
    for mode in ("full", "race"):
        trainer = make(root / mode, kind, mode, metric)
        trainer.train()
        found[mode], held[mode] = best_of(trainer), own_part(trainer)
        found[f"{mode}_loaded"] = trainer.evaluate()[f"eval_{metric}"]
    found["weights_equal"] = all(torch.equal(value, held["race"][name]) for name, value in held["full"].items())
    found["pairs"] = trainer._scheduled.race.session.race.state.pairs
    found["reloads"] = trainer._scheduled.race.session.race.config.reload
    found["last"] = [entry for entry in trainer.state.log_history if "eval_best_step" in entry][-1]
    resumed = make(root / "race", kind, "race", metric)
    resumed.train(resume_from_checkpoint=str(root / "race" / f"checkpoint-{STEPS // 2}"))
    found["resumed"] = best_of(resumed)
    found["resumed_pairs"] = resumed._scheduled.race.session.race.state.pairs
    print_everywhere(json.loads(json.dumps(found)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
