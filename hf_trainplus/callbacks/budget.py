"""Keeps any Trainer inside a budget: ends the run with its last evaluation and its checkpoint done."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from hf_trainplus.budget.budget import Budget
from hf_trainplus.budget.keeping.energy import Joules
from hf_trainplus.budget.keeping.headroom import Headroom
from hf_trainplus.budget.keeping.measured import Phase
from hf_trainplus.budget.meter import Reading
from hf_trainplus.budget.remaining import TimeLeft
from hf_trainplus.budget.signals import DEFAULT_SIGNALS, parse_signals
from hf_trainplus.budget.stops import StopCondition, StopReason, find_deadline
from hf_trainplus.callbacks._ballot import Decision
from hf_trainplus.callbacks._budget_control import RunControl, due
from hf_trainplus.callbacks._budget_leaving import EvaluationLeaving
from hf_trainplus.callbacks._budget_options import BudgetOptions
from hf_trainplus.callbacks._budget_resume import (
    ensure_entry,
    require_counted,
    require_measured,
    saved_state,
    spent_before,
)
from hf_trainplus.callbacks._budget_schedule import follow_budget, require_lambda_schedule
from hf_trainplus.callbacks._budget_session import BudgetSession

logger = logging.getLogger(__name__)


class BudgetCallback(EvaluationLeaving, TrainerCallback, ExportableState):
    """Ends a run inside its budget, with its last evaluation and its checkpoint done; for any Trainer.

    At every step boundary it asks whether a further step and then the last evaluation and save still fit, from what
    they took so far; ranks agree by one small all-reduce. An evaluation that nobody has measured when a quarter of the
    budget is used is run once then, and so is a save. One that is due where no further step would fit after it moves
    to the end of the run. A stop file and a deadline end a run the same way; a signal skips the evaluation.

    It does not interrupt a step, a save or an evaluation (``PlusTrainer`` asks it between two batches and leaves one at
    a signal, at a stop file, and when no more than the save fits into a limit in time), it does not count what a killed
    session spent after its last checkpoint, and it stops nothing when no limit is set. On resume it restores itself
    from the checkpoint; with the budget spent the run takes no step and returns at once. Under upstream's
    ``restore_callback_states_from_checkpoint`` the callback is rebuilt from plain values, so ``conditions``, ``clock``
    and ``energy`` do not survive there.

    Args:
        budget: limits: a ``Budget``, a mapping, or text such as ``"gpu_hours=8,wall_clock=2h30m"``.
        usd_per_device_hour: price of one device for one hour in dollars; needed for a limit in ``usd``.
        deadline: ISO 8601 time or seconds since 1970. ``SLURM_JOB_END_TIME`` in the environment is a deadline too; the
            earlier one holds.
        stop_signals: signals that end the run at the next step boundary; None or "" for none.
        stop_file: a file whose existence ends the run.
        lr_follows_budget: read the learning-rate schedule at the share of the budget used, not at the step.
        evaluate_at_stop: evaluate where the budget ends the run; None = when the run evaluates at all.
        save_at_stop: save a checkpoint there, from which the run goes on; None = yes, under ``save_strategy="no"`` too.
        margin_seconds: time kept back for leaving the process, in seconds, >= 0.
        expected_seconds: what an ``"evaluation"`` or a ``"save"`` takes, where it is known before it is measured.
        count_from_process_start: count imports and loading too; False counts from the start of training.
        conditions: further stop conditions of your own.
        clock: seconds from a fixed point, for tests.
        energy: joules drawn so far by this process's devices; NVML by default.

    Raises:
        ValueError: a limit, deadline, signal or price that does not parse or fit together; or, when the Trainer is
            made, a limit on something that it does not measure.

    Keys added to a training log, for the progress line:

    ===================== =======================================================================================
    key                   meaning
    ===================== =======================================================================================
    ``time_left_seconds`` forecast of the time to the end, evaluation, saving and later stages included; from 20
                          measured steps on
    ``budget_used``       share of the training that the tightest limit allows, 0 to 1
    ===================== =======================================================================================

    Example:
        >>> callback = BudgetCallback("gpu_hours=8,wall_clock=2h30m")
        >>> str(callback.budget), callback.stop_reason
        ('wall_clock=2h30m,gpu_hours=8', None)
    """

    def __init__(
        self,
        budget: Budget | Mapping[str, Any] | str | None = None,
        *,
        usd_per_device_hour: float | None = None,
        deadline: str | float | None = None,
        stop_signals: str | Iterable[str] | None = DEFAULT_SIGNALS,
        stop_file: str | None = None,
        lr_follows_budget: bool = False,
        evaluate_at_stop: bool | None = None,
        save_at_stop: bool | None = None,
        margin_seconds: float = 1.0,
        expected_seconds: Mapping[Phase, float] | None = None,
        count_from_process_start: bool = True,
        conditions: Iterable[StopCondition] = (),
        clock: Callable[[], float] = time.monotonic,
        energy: Joules | None = None,
    ) -> None:
        self.budget = Budget.parse(budget)
        self.options = BudgetOptions(
            budget=self.budget.limits(),
            usd_per_device_hour=usd_per_device_hour,
            deadline=deadline,
            stop_signals=",".join(one.name for one in parse_signals(stop_signals)),
            stop_file=stop_file,
            lr_follows_budget=lr_follows_budget,
            evaluate_at_stop=evaluate_at_stop,
            save_at_stop=save_at_stop,
            margin_seconds=margin_seconds,
            expected_seconds=dict(expected_seconds or {}),
            count_from_process_start=count_from_process_start,
        )
        self.conditions = tuple(conditions)
        self.later_stages: Callable[[], float | None] = lambda: 0.0
        self.stage_rooms: Callable[[], Sequence[Headroom]] = tuple
        self.saved: dict[str, Any] = {}
        self._clock = clock
        self._energy = energy
        self._session: BudgetSession | None = None
        self._run = RunControl(evaluate_at_stop, save_at_stop)
        self._share: float | None = None

    # ---- what others may ask -------------------------------------------------------------------------------------

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the run ended, None while it runs or when something else ended it."""
        return self._run.reason

    @property
    def stop_limit(self) -> str | None:
        """The limit that ended the run, e.g. ``"gpu_hours"``; None when none did."""
        return self._run.limit

    def reading(self, state: TrainerState) -> Reading | None:
        """Return what the run has spent, None outside training."""
        return self._session.keeper.meter.read(self._session.progress(state)) if self._session else None

    def time_left(self, args: TrainingArguments, state: TrainerState) -> TimeLeft | None:
        """Forecast the time to the end of the run, with that of later stages as ``later_stages`` (a function) says.

        What is left under the limits of the stage that runs, ``stage_rooms`` says.

        Returns:
            The forecast; None outside training, before 20 steps are measured, and while a later stage is not known.
        """
        later = self.later_stages()
        if self._session is None or later is None:
            return None
        return self._session.time_left(state, self._run.closing(args), later, self.stage_rooms())

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: options, meters, measured costs, the reason of a stop."""
        if self._session:
            reason = self._run.reason
            self.saved = {
                "reason": reason.value if reason else None,
                "limit": self._run.limit,
                "keeper": self._session.keeper.state(),
                "rhythm": self._session.rhythm_values(),
                "later_stages_seconds": self.later_stages(),
                "stage_rooms": [asdict(room) for room in self.stage_rooms()],
            }
        return {"args": self.options.plain(), "attributes": {"saved": self.saved}}

    # ---- events of the Trainer -----------------------------------------------------------------------------------

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Refuse a limit on something that this Trainer does not measure, and an end of a job that is no time."""
        find_deadline(self.options.deadline, os.environ, time.time())
        require_measured(self.budget, args, self._energy)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Restore what a checkpoint kept, start the meters, and take no step when none fits."""
        require_measured(self.budget, args, self._energy)
        if self.options.lr_follows_budget:
            require_lambda_schedule(kwargs.get("lr_scheduler"))
        loader = kwargs.get("train_dataloader")
        self._run = RunControl(
            self.options.evaluate_at_stop, self.options.save_at_stop, leaves_evaluations=self.leaves_evaluations
        )
        self._session = BudgetSession(
            self.options, args, loader, clock=self._clock, energy=self._energy, conditions=self.conditions
        )
        saved = saved_state(state, type(self).__name__)
        self._told_late = False
        self._session.begin(state, saved.get("keeper"))
        ensure_entry(state, type(self).__name__, self.state())
        decision = self._decide(args, state, (), kwargs, spent_before(self.budget, saved))
        if decision.reason:
            self._run.take_no_step(args, state, control, decision, loader)
            self._say(state, "No step taken")
        return control

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Measure the step and decide whether there is another one."""
        if self._session:
            require_counted(self.budget, state)
            self._session.close("step", state)
            self._act(args, state, control, kwargs)
        return control

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Decide again where an epoch's own evaluation or save is due; do nothing twice after a stop."""
        if self._session is None:
            return control
        if self._run.reason not in (None, StopReason.MAX_STEPS):
            self._run.close_epoch(args, state, control)
        elif due(control) and not control.should_training_stop:
            self._act(args, state, control, kwargs)
        return control

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Measure the evaluation."""
        self._run.metrics = dict(metrics or {})
        self._close("evaluation", state)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Measure the save."""
        self._close("save", state)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add the time left to a training log."""
        if self._session is None or logs is None or "loss" not in logs:
            return
        left = self.time_left(args, state)
        if left is not None:
            logs["time_left_seconds"] = round(left.seconds, 1)
        if self._share is not None:
            logs["budget_used"] = round(self._share, 4)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Put the signal handlers and the loader back."""
        if self._session:
            self.state()
            self._told_late = self.check(state) is StopReason.SIGNAL
            self.put_signals_back()
            self._session = None
        self._run.end()

    def put_signals_back(self) -> None:
        """Put the handlers back; a trainer calls it when training raises."""
        if self._session:
            self._session.end()

    # ---- one boundary --------------------------------------------------------------------------------------------

    def _close(self, phase: Phase, state: TrainerState) -> None:
        if self._session:
            self._session.close(phase, state)
            self._run.done(phase, state)

    def _act(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, kwargs: Mapping[str, Any]
    ) -> None:
        decision = self._decide(args, state, due(control), kwargs)
        self._run.act(args, state, control, decision)
        if decision.reason and self._run.reason is decision.reason:
            self._say(state, f"Training ends at step {state.global_step}")

    def _decide(
        self,
        args: TrainingArguments,
        state: TrainerState,
        pending: tuple[Phase, ...],
        kwargs: Mapping[str, Any],
        spent: str | None = None,
    ) -> Decision:
        assert self._session is not None  # noqa: S101 - every caller has checked
        decision = self._session.decide(state, self._run.moment(state), pending, self._run.closing(args), spent)
        self._share = decision.share
        if self.options.lr_follows_budget and decision.share is not None:
            scheduler = require_lambda_schedule(kwargs.get("lr_scheduler"))
            follow_budget(scheduler, kwargs["optimizer"], decision.share, state.max_steps)
        return decision

    def _say(self, state: TrainerState, what: str) -> None:
        if state.is_world_process_zero and self._session and self._run.reason:
            detail = self._session.describe(self._run.limit, state)
            logger.warning("%s: %s%s.", what, self._run.reason.value, f" ({detail})" if detail else "")
