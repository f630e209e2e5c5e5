"""What a stage trains with, as plain values that a checkpoint keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from transformers import TrainingArguments

from hf_trainplus.budget.plans.stage import OPTIMIZATION_ARGUMENTS, Stage
from hf_trainplus.training.run_size import device_count
from hf_trainplus.training.stages.arguments import stage_arguments

_NAMES = (*OPTIMIZATION_ARGUMENTS, "max_steps", "num_train_epochs", "seed", "data_seed")


def stage_options(stage: Stage, args: TrainingArguments, rows: int | None) -> Mapping[str, Any]:
    """Return the options that a stage cannot change in its middle: another value would be another run.

    Args:
        stage: the stage.
        args: the run's own arguments.
        rows: rows of its training data, None for a stream.

    Returns:
        Plain JSON values; the batch size counts over all devices, so that a stage may go on with others.
    """
    devices = device_count(args)
    fields = stage_arguments(stage, args, devices)
    found = {name: fields.get(name, getattr(args, name)) for name in _NAMES}
    # of the two lengths the Trainer takes the steps where there are any
    found.pop("num_train_epochs" if found["max_steps"] > 0 else "max_steps")
    per_device = fields["per_device_train_batch_size"]
    accumulation = fields.get("gradient_accumulation_steps", args.gradient_accumulation_steps)
    found["rows_a_step"] = per_device * accumulation * devices
    found["rows"] = rows
    plain: Mapping[str, Any] = json.loads(json.dumps(found, default=str))
    return plain
