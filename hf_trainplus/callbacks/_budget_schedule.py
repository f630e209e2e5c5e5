"""Makes the learning rate follow the share of the budget used, through the Trainer's own scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from hf_trainplus.budget.keeping.share_schedule import share_multiplier


def require_lambda_schedule(scheduler: Any) -> LambdaLR:
    """Return the scheduler when its multiplier is a function of the step.

    Raises:
        ValueError: it is of another kind.
    """
    if isinstance(scheduler, LambdaLR):
        return scheduler
    raise ValueError(
        f"lr_follows_budget=True needs a schedule that is a function of the step, and lr_scheduler is a "
        f"{type(scheduler).__name__}. Set TrainingArguments(lr_scheduler_type='linear') or 'cosine'."
    )


def follow_budget(scheduler: LambdaLR, optimizer: Optimizer, share: float, total_steps: int) -> None:
    """Set the learning rates of the next step to what the schedule plans at this share of the budget.

    Args:
        scheduler: the Trainer's scheduler; its functions, base rates and logged rates are used.
        optimizer: the optimizer that the scheduler belongs to.
        share: share of the budget used, 0 to 1.
        total_steps: steps that the schedule was made for.
    """
    rates: list[float | Tensor] = [
        float(base) * share_multiplier(cast("Callable[[float], float]", multiplier), share, total_steps)
        for base, multiplier in zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
    ]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    # what get_last_lr() returns, hence what the Trainer logs; torch has no setter
    scheduler._last_lr = rates
