"""Whether a stage's schedule can be made: told when the trainer is made, not when the stage begins."""

from __future__ import annotations

from typing import cast

from transformers import TrainingArguments, get_scheduler

from hf_trainplus.budget.plans.stage import Stage


def schedule_problem(stage: Stage, args: TrainingArguments) -> str | None:
    """Return what is wrong with a stage's schedule and its settings, None when nothing is.

    It makes the schedule for one weight that nobody trains, as upstream would; a schedule that the stage leaves to the
    run is upstream's business.

    Args:
        stage: the stage.
        args: the run's own arguments.

    Example:
        >>> args = TrainingArguments("out", use_cpu=True, report_to="none")
        >>> schedule_problem(Stage("a", budget="max_steps=9", lr_scheduler_type="cosine"), args) is None
        True
        >>> wrong = Stage("a", budget="max_steps=9", lr_scheduler_type="cosine", lr_scheduler_kwargs={"cycles": 2})
        >>> schedule_problem(wrong, args).partition(" (")[0]
        "lr_scheduler_type cosine cannot be made with lr_scheduler_kwargs={'cycles': 2}"
    """
    if stage.lr_scheduler_type is None and stage.lr_scheduler_kwargs is None:
        return None
    import torch

    own = args.lr_scheduler_type
    name = stage.lr_scheduler_type or str(getattr(own, "value", own))
    settings = stage.lr_scheduler_kwargs or {}
    rate = args.learning_rate if stage.learning_rate is None else stage.learning_rate
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    try:
        get_scheduler(
            name,
            optimizer,
            num_warmup_steps=0,
            num_training_steps=_STEPS,
            scheduler_specific_kwargs=cast("dict[str, object]", dict(settings)),
        )
    except (TypeError, ValueError) as error:
        return f"lr_scheduler_type {name} cannot be made with lr_scheduler_kwargs={settings} ({error})."
    return None


# any number of steps shows which settings a schedule needs and knows
_STEPS = 1000
