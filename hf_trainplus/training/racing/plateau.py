"""A plateau scheduler beside a race: it is given a value on the right side of its threshold.

The scheduler asks of every evaluation whether it beats the best value so far by a threshold. That is a question of a
level, which a race decides from the rows that it takes. A value that beats it is read exactly, since the next question
is about that value; any other leaves nothing behind but that it did not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch.optim.lr_scheduler import ReduceLROnPlateau
from transformers.optimization import GreedyLR

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.decisions.race import RaceVerdict

_FOLLOWS = "the learning rate follows every value of the metric"


def why_not(trainer: Trainer, name: str, *, greater_is_better: bool) -> str | None:
    """Return why the scheduler needs the exact value of every evaluation; None when a side of its threshold is enough.

    Args:
        trainer: its learning rate scheduler counts.
        name: the watched metric without prefix.
        greater_is_better: direction in which it is raced.
    """
    scheduler: Any = trainer.lr_scheduler
    if not isinstance(scheduler, (ReduceLROnPlateau, GreedyLR)):
        return None
    if type(scheduler) is not ReduceLROnPlateau:
        return f"{_FOLLOWS}, through {type(scheduler).__name__}"
    if (scheduler.mode == "max") is not greater_is_better:
        return f"{_FOLLOWS}: ReduceLROnPlateau(mode={scheduler.mode!r}) looks for the worst {name}"
    if name == "perplexity":
        return f"{_FOLLOWS}: name the loss in metric_for_best_model, of which perplexity is a function"
    return None


def levels(trainer: Trainer) -> tuple[float, ...]:
    """Return the level that an evaluation must reach to count as an improvement; nothing without such a scheduler."""
    scheduler: Any = trainer.lr_scheduler
    # upstream leaves the scheduler alone at the evaluation before the first step
    if type(scheduler) is not ReduceLROnPlateau or trainer.state.global_step == 0:
        return ()
    return (improvement_level(scheduler),)


def improvement_level(scheduler: ReduceLROnPlateau) -> float:
    """Return the least good value that the scheduler takes for an improvement on its best.

    Example:
        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        >>> scheduler = ReduceLROnPlateau(optimizer, threshold=0.5)
        >>> scheduler.step(2.0)
        >>> level = improvement_level(scheduler)
        >>> level < 1.0, level + 1e-15 < 1.0
        (True, False)
    """
    best, threshold = float(scheduler.best), float(scheduler.threshold)
    sign = -1.0 if scheduler.mode == "min" else 1.0
    better = sign * np.inf
    if not np.isfinite(best):
        return best
    # in the scheduler's own arithmetic, so that both round alike
    limit = best * (1.0 + sign * threshold) if scheduler.threshold_mode == "rel" else best + sign * threshold
    return float(np.nextafter(limit, better))


def value(verdict: RaceVerdict) -> float:
    """Return the value that the scheduler is given; NaN, which never improves, for one that is not finite."""
    found = verdict.value if verdict.exact else verdict.levels[0].value
    return float("nan") if found is None else found
