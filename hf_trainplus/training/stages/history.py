"""What a stage has seen, read from the Trainer's log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hf_trainplus.budget.plans.stage_history import Evaluation

_PREFIX = "eval_"


def evaluations_since(
    log_history: Sequence[Mapping[str, Any]], first_step: int, *, at_first: bool = False
) -> tuple[Evaluation, ...]:
    """Return the evaluations of a stage, oldest first; several sets evaluated at a step are one evaluation.

    Args:
        log_history: ``state.log_history``; every entry has its ``step``.
        first_step: step at which the stage began.
        at_first: whether an evaluation at that very step belongs to the stage, which takes no step.

    Example:
        >>> log = [{"step": 4, "loss": 0.5}, {"step": 4, "eval_loss": 0.6}, {"step": 6, "eval_loss": 0.4}]
        >>> [(one.step, one.training_loss) for one in evaluations_since(log, 0)]
        [(4, 0.5), (6, 0.5)]
    """
    metrics: dict[int, dict[str, float]] = {}
    losses: dict[int, float | None] = {}
    loss: float | None = None
    for entry in log_history:
        step = int(entry["step"])
        if "loss" in entry:
            loss = float(entry["loss"]) if step > first_step else None
        found = {key: value for key, value in entry.items() if key.startswith(_PREFIX)}
        if found and (step > first_step or (at_first and step == first_step)):
            metrics.setdefault(step, {}).update(found)
            losses[step] = loss
    return tuple(Evaluation(step, values, losses[step]) for step, values in metrics.items())
