"""A stop that leaves no time for an evaluation, told by who saw it to those that evaluate where a run ends."""

from __future__ import annotations

from transformers import TrainerControl

_MARK = "_trainplus_urgent_stop"


def mark_urgent(control: TrainerControl, *, keeps_due: bool) -> None:
    """Say that training stops at once.

    Args:
        control: of the Trainer that stops.
        keeps_due: whether an evaluation that is due at this step stays due, to be made first by the run that goes on.

    Example:
        >>> control = TrainerControl(should_training_stop=True)
        >>> mark_urgent(control, keeps_due=True)
        >>> is_urgent(control), keeps_due_evaluations(control)
        (True, True)
    """
    setattr(control, _MARK, keeps_due)


def clear_urgent(control: TrainerControl) -> None:
    """Forget the stop of an earlier run."""
    setattr(control, _MARK, None)


def is_urgent(control: TrainerControl) -> bool:
    """Say whether training stops at once: nobody may ask for an evaluation that is not due."""
    return control.should_training_stop and getattr(control, _MARK, None) is not None


def keeps_due_evaluations(control: TrainerControl) -> bool:
    """Say whether what is due at the step of an urgent stop stays due."""
    return bool(getattr(control, _MARK, None))
