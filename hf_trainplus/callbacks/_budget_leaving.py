"""What a budget tells a trainer that can leave a running evaluation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from transformers import TrainerState, TrainingArguments

from hf_trainplus.budget.stops import StopReason
from hf_trainplus.callbacks._budget_control import RunControl
from hf_trainplus.callbacks._budget_session import BudgetSession


class EvaluationLeaving:
    """The part of ``BudgetCallback`` that is asked between the batches of an evaluation; it leaves none itself."""

    # set by a trainer that leaves evaluations, before it trains
    leaves_evaluations = False
    _session: BudgetSession | None = None
    _run: RunControl
    _clock: Callable[[], float]
    # step and time at which it was asked last
    _asked: tuple[int, float] = (-1, 0.0)
    # a signal came while a loop ended: a plan must not begin its next stage
    _told_late = False

    def check(self, state: TrainerState) -> StopReason | None:
        """Return the reason to stop that this rank alone sees now, e.g. between two batches of an evaluation.

        Cheap, and no collective: whoever acts on it lets the ranks agree first.
        """
        return self._session.check(self._run.moment(state)) if self._session else None

    def leaves_evaluation(self, args: TrainingArguments, state: TrainerState) -> bool:
        """Say whether this rank alone sees that a running evaluation must be left: cheap, and no collective.

        A signal leaves every evaluation, and a run that had nothing left to spend begins none. A stop file that was
        seen at a step waits for the last evaluation; one that appears in the middle leaves it. A limit in time does
        when no more than the last save fits into it after another batch that takes as long as the last one.
        """
        if self._session is None:
            return self._told_late
        if self._run.took_no_step:
            return True
        reason = self.check(state)
        if reason is StopReason.STOP_FILE and self._run.reason is None:
            return True
        (step, before), now = self._asked, self._clock()
        self._asked = state.global_step, now
        batch = now - before if step == state.global_step else 0.0
        saves = [phase for phase in self._run.closing(args) if phase == "save"]
        return (reason is not None and reason.urgent) or self._session.overdue(state, saves, batch)

    def evaluation_left(self, args: TrainingArguments, state: TrainerState) -> None:
        """Note why the ranks have left an evaluation, before its checkpoint is written. It is a collective.

        That checkpoint says that the evaluation is owed: no other may be written at this step.
        """
        if self._session is None:
            return
        decision = self._session.decide(state, self._run.moment(state), (), self._run.closing(args))
        if decision.reason:
            self._run.reason, self._run.limit = decision.reason, decision.limit
        self._run.done("evaluation", state)
        self._run.done("save", state)

    def raising_at_signal(self, error: Callable[[], Exception]) -> AbstractContextManager[None]:
        """Inside the context a stop signal raises an error, see ``SignalStop.raising``."""
        return nullcontext() if self._session is None else self._session.signals.raising(error)
