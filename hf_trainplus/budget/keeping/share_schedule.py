"""A learning-rate schedule that follows the share of the budget used instead of the step count. Pure."""

from __future__ import annotations

from collections.abc import Callable


def share_multiplier(schedule: Callable[[float], float], share: float, total_steps: int) -> float:
    """Return the learning-rate multiplier for a share of the budget.

    The schedule that was planned for ``total_steps`` is read at the step that the share stands for, so warm-up, shape
    and end are the planned ones wherever the budget ends the run. It does not change how many steps are taken.

    Args:
        schedule: multiplier at a step, e.g. an entry of ``LambdaLR.lr_lambdas``; it is given a float.
        share: share of the budget used, 0 to 1.
        total_steps: steps that the schedule was made for, >= 1.

    Returns:
        What the learning rate is multiplied with.

    Raises:
        ValueError: a share outside [0, 1], or no steps.

    Example:
        >>> linear = lambda step: max(0.0, 1 - step / 100)
        >>> [share_multiplier(linear, share, 100) for share in (0.0, 0.5, 1.0)]
        [1.0, 0.5, 0.0]
    """
    if not 0 <= share <= 1 or total_steps < 1:
        raise ValueError(f"share={share}, total_steps={total_steps}; allowed: share from 0 to 1 and steps >= 1.")
    return schedule(share * total_steps)
