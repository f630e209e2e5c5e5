"""Turns what the ranks decided into the Trainer's control flags."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerControl, TrainerState, TrainingArguments

from hf_trainplus.budget.keeping.measured import Phase
from hf_trainplus.budget.stops import Moment, StopReason
from hf_trainplus.callbacks._ballot import Decision
from hf_trainplus.callbacks._no_batches import hold_back_batches
from hf_trainplus.training.urgent import mark_urgent

logger = logging.getLogger(__name__)


def due(control: TrainerControl) -> tuple[Phase, ...]:
    """Return what the Trainer will do at this boundary in any case."""
    phases: list[Phase] = []
    if control.should_evaluate:
        phases.append("evaluation")
    if control.should_save:
        phases.append("save")
    return tuple(phases)


class RunControl:
    """Sets the control flags of one run, and knows what was done at which step.

    Args:
        evaluate_at_stop: evaluate where a run is ended; None = when it evaluates at all.
        save_at_stop: save there; None = yes, under ``save_strategy="no"`` too: what is not saved is lost.
        leaves_evaluations: whether the trainer leaves an evaluation at a signal and makes up for it on a resume.
    """

    def __init__(
        self, evaluate_at_stop: bool | None, save_at_stop: bool | None, *, leaves_evaluations: bool = False
    ) -> None:
        self.reason: StopReason | None = None
        self.limit: str | None = None
        self.metrics: Mapping[str, float] = {}
        self._evaluate_at_stop = evaluate_at_stop
        self._save_at_stop = save_at_stop
        self._leaves_evaluations = leaves_evaluations
        self._done_at: dict[Phase, int] = {}
        self._put_back: Callable[[], None] | None = None
        self._told_postponed = False
        self.took_no_step = False

    def done(self, phase: Phase, state: TrainerState) -> None:
        """Note that a phase ran at this step."""
        self._done_at[phase] = state.global_step

    def moment(self, state: TrainerState) -> Moment:
        """Return what stop conditions look at."""
        return Moment(state.global_step, self.metrics)

    def closing(self, args: TrainingArguments) -> tuple[Phase, ...]:
        """Return the phases that end a run here."""
        evaluates = args.eval_strategy != "no" or "evaluation" in self._done_at
        evaluate = evaluates if self._evaluate_at_stop is None else self._evaluate_at_stop
        save = self._save_at_stop is not False
        wanted: tuple[tuple[Phase, bool], ...] = (("evaluation", evaluate), ("save", save))
        return tuple(phase for phase, want in wanted if want)

    def act(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, decision: Decision) -> None:
        """Do what the ranks decided at a boundary."""
        if control.should_training_stop:
            if state.global_step >= state.max_steps:
                self.reason = StopReason.MAX_STEPS
        elif decision.reason:
            self._stop(args, control, decision)
        elif decision.postpone:
            self._postpone(state, control)
        else:
            control.should_evaluate = control.should_evaluate or "evaluation" in decision.probe
            control.should_save = control.should_save or "save" in decision.probe

    def _stop(self, args: TrainingArguments, control: TrainerControl, decision: Decision) -> None:
        self.reason, self.limit = decision.reason, decision.limit
        closing = self.closing(args)
        control.should_training_stop = True
        control.should_save = control.should_save or "save" in closing
        if self._urgent:
            mark_urgent(control, keeps_due=self._leaves_evaluations)
        if self._urgent and self._leaves_evaluations:
            return  # what is due stays due: the run that goes on logs and evaluates as if nothing had been between
        control.should_log = True
        control.should_evaluate = "evaluation" in closing and not self._urgent

    @property
    def _urgent(self) -> bool:
        return self.reason is not None and self.reason.urgent

    def _postpone(self, state: TrainerState, control: TrainerControl) -> None:
        if not self._told_postponed and state.is_world_process_zero:
            logger.warning(
                "%s due at step %d moves to the end of the budget, which is close: no further step would fit after it.",
                " and ".join(due(control)),
                state.global_step,
            )
        self._told_postponed = True
        control.should_evaluate = control.should_save = False

    def close_epoch(self, args: TrainingArguments, state: TrainerState, control: TrainerControl) -> None:
        """After a stop, keep the end of the epoch from evaluating or saving a step a second time."""
        done = {phase for phase, step in self._done_at.items() if step == state.global_step}
        if self._put_back or self._urgent or "evaluation" in done:
            control.should_evaluate = False
        if self._put_back or "save" in done:
            control.should_save = False
        elif "save" in self.closing(args):
            # save_strategy="best" takes the flag back when the last evaluation is no new best
            control.should_save = True
        if self._put_back or (self._urgent and self._leaves_evaluations):
            control.should_log = False

    def take_no_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, decision: Decision, loader: Any
    ) -> None:
        """End a run that has not begun: nothing is trained, evaluated or saved."""
        self.reason, self.limit, self.took_no_step = decision.reason, decision.limit, True
        control.should_training_stop = True
        self._put_back = hold_back_batches(loader, args)
        if self._put_back is None and state.is_world_process_zero:
            logger.warning("This training loader cannot be held back; the run ends after one step.")

    def end(self) -> None:
        """Give the loader its batches back."""
        if self._put_back:
            self._put_back()
            self._put_back = None
