"""Arguments of a process that runs one stage: its batch sizes and its optimization are set when they are made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hf_trainplus.budget.plan_file import read_plan
from hf_trainplus.training.stages.arguments import training_fields
from hf_trainplus.training.stages.environment import launched_plan, launched_stage


def set_launched_stage(args: Any, environment: Mapping[str, str] | None = None) -> None:
    """Read the plan, which refuses a bad one before anything is built; under ``trainplus run`` set its stage's fields.

    DeepSpeed takes batch sizes and learning rate from the arguments as they are made, before there is a trainer.

    Args:
        args: arguments that are being made; its fields are set in place.
        environment: ``os.environ``, or a stand-in; ``TRAINPLUS_PLAN``, ``TRAINPLUS_STAGE`` and ``WORLD_SIZE`` are read.

    Raises:
        ValueError: a plan that does not parse, another plan than ``trainplus run`` was given, or a stage that it lacks.
    """
    environment = os.environ if environment is None else environment
    given, only = launched_plan(environment), launched_stage(environment)
    if args.plan is not None and given is not None and read_plan(args.plan).to_dict() != read_plan(given).to_dict():
        raise ValueError(
            f"plan={args.plan!r} is another plan than `trainplus run` was given ({given}); leave it out of the command."
        )
    args.plan = args.plan if given is None else given
    if args.plan is None:
        return
    plan = read_plan(args.plan)
    if only is None:
        return
    stage = plan.stages[plan.index(only)]
    for name, value in training_fields(stage, args, int(environment.get("WORLD_SIZE") or 1)).items():
        setattr(args, name, value)
