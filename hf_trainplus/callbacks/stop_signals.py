"""Ends a run with a checkpoint when a stop signal comes; what a PlusTrainer does without any option."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_trainplus.budget.signals import DEFAULT_SIGNALS, SignalStop
from hf_trainplus.budget.stops import Moment, StopReason
from hf_trainplus.callbacks._ballot import Decision
from hf_trainplus.callbacks._budget_control import RunControl
from hf_trainplus.callbacks._own_state import entries
from hf_trainplus.callbacks.agreement import agree, world_size

logger = logging.getLogger(__name__)

_MOST_STEPS = 50  # between two agreements: later steps may be longer than those that were measured
ENTRY = "StopSignalsCallback"
"""Under which name a checkpoint's state says why the run ended; there is none while it goes on."""


class StopSignalsCallback(TrainerCallback):
    """Saves and ends the run at the next step boundary after a signal, on all ranks together; for any Trainer.

    It measures nothing, logs nothing and keeps nothing in the checkpoints of a run that goes on, so that a run to which
    no signal comes is stock's to the bit. ``BudgetCallback`` watches signals too, beside everything else.

    Several ranks agree on the host, at steps that are about ``agree_seconds`` apart: where steps are shorter, most of
    them ask nobody.

    Args:
        signals: names of signals.
        agree_seconds: time between two agreements of several ranks, in seconds, >= 0; 0 agrees at every step.
        clock: seconds from a fixed point, for tests.

    Raises:
        ValueError: an unknown signal.

    Example:
        >>> StopSignalsCallback("SIGTERM").stop_reason is None
        True
    """

    # set by a trainer that leaves evaluations, before it trains
    leaves_evaluations = False

    def __init__(
        self,
        signals: str | Iterable[str] = DEFAULT_SIGNALS,
        *,
        agree_seconds: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.signals = SignalStop(signals, scope=Trainer.train.__code__)
        self._agree_seconds = agree_seconds
        self._clock = clock
        self._run = RunControl(None, None)
        self._asked_step, self._asked_at, self._next_step = 0, 0.0, 0

    @property
    def stop_reason(self) -> StopReason | None:
        """``SIGNAL`` once a signal has ended the run, else None."""
        return self._run.reason if self._run.reason is StopReason.SIGNAL else None

    # ---- events of the Trainer ----
    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Set the handlers."""
        self._run = RunControl(None, None, leaves_evaluations=self.leaves_evaluations)
        self._asked_step, self._asked_at = state.global_step, self._clock()
        self._next_step = state.global_step + 1
        entries(state).pop(ENTRY, None)
        self.signals.install()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """End the run when a signal has come on any rank."""
        if world_size() == 1 or state.global_step >= self._next_step:
            self._end_if_told(args, state, control)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Note that it was done at this step."""
        self._run.done("evaluation", state)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Note that it was done at this step."""
        self._run.done("save", state)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """After a stop, do nothing a second time."""
        if self.stop_reason:
            self._run.close_epoch(args, state, control)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Put the handlers back that were there before."""
        self.put_signals_back()

    def put_signals_back(self) -> None:
        """Put the handlers back; a trainer calls it when training raises."""
        self.signals.restore()

    # ---- what a trainer asks that leaves evaluations ----
    def check(self, state: TrainerState) -> StopReason | None:
        """Return ``SIGNAL`` when a signal has come on this rank; no collective."""
        return self.signals.check(Moment(state.global_step, {}))

    def leaves_evaluation(self, args: TrainingArguments, state: TrainerState) -> bool:
        """Say whether a signal has come on this rank; no collective."""
        return self.check(state) is not None

    def evaluation_left(self, args: TrainingArguments, state: TrainerState) -> None:
        """Note why an evaluation was left, before its checkpoint is written. It is a collective."""
        if agree([float(self.check(state) is not None)])[0]:
            self._run.reason = StopReason.SIGNAL
            self._record(state)
        self._run.done("evaluation", state)
        self._run.done("save", state)

    def raising_at_signal(self, error: Callable[[], Exception]) -> AbstractContextManager[None]:
        """Inside the context a stop signal raises an error, see ``SignalStop.raising``."""
        return self.signals.raising(error)

    # ---- one boundary ----
    def _end_if_told(self, args: TrainingArguments, state: TrainerState, control: TrainerControl) -> None:
        told, seconds = agree([float(self.check(state) is not None), self._seconds_a_step(state)])
        self._asked_step, self._asked_at = state.global_step, self._clock()
        # from values that all ranks have agreed on, so that all ask again at the same step
        steps = int(self._agree_seconds / seconds) if seconds > 0 else 1
        self._next_step = state.global_step + min(max(steps, 1), _MOST_STEPS)
        if not told:
            return
        self._run.act(args, state, control, Decision(StopReason.SIGNAL, None, False, (), None))
        if self.stop_reason:
            self._record(state)
            if state.is_world_process_zero:
                logger.warning("Training ends at step %d: %s.", state.global_step, StopReason.SIGNAL.value)

    def _seconds_a_step(self, state: TrainerState) -> float:
        steps = state.global_step - self._asked_step
        return (self._clock() - self._asked_at) / steps if steps > 0 else 0.0

    def _record(self, state: TrainerState) -> None:
        saved = {"reason": StopReason.SIGNAL.value}
        entries(state)[ENTRY] = {"args": {}, "attributes": {"saved": saved}}
