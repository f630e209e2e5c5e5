"""Ends a stage where its budget, its steps or a rule of the plan says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import IntervalStrategy
from transformers.utils import logging

from hf_trainplus.budget.keeping.headroom import Headroom
from hf_trainplus.budget.keeping.measured import Measured, Phase
from hf_trainplus.budget.remaining import OPEN_STEPS
from hf_trainplus.callbacks._budget_control import due
from hf_trainplus.callbacks._budget_schedule import follow_budget, require_lambda_schedule
from hf_trainplus.callbacks._own_state import ensure_entry, saved_state
from hf_trainplus.callbacks._stage_meter import StageMeter
from hf_trainplus.training.stages.arguments import epochs_between, evaluates, is_open
from hf_trainplus.training.stages.record import ENTRY
from hf_trainplus.training.stages.run import StagedRun

logger = logging.get_logger("hf_trainplus")


class StageCallback(TrainerCallback, ExportableState):
    """Sets the Trainer's flags at the boundaries of stages; ``PlusTrainer`` adds it when it is given a plan.

    It chooses nothing: what follows is the plan's word (``StagePlan.decide``). A boundary is logged, evaluated when
    the stage evaluates at all, and always saved. A stop that somebody else asked for is no boundary.

    Args:
        run: the plan's run.
        clock: seconds from a fixed point, for tests.
    """

    follows_schedules = True  # stays behind a schedule of evaluations that puts itself last

    def __init__(self, run: StagedRun, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.run = run
        self._clock = clock
        self._meter: StageMeter | None = None
        self._ended = False

    @property
    def stop_reason(self) -> str | None:
        """Why the plan is over, a ``StopReason`` value; None while it is not."""
        return None if self.run.record is None else self.run.record.reason

    @property
    def measured(self) -> Measured:
        """What steps, evaluations and saves of the stage took."""
        return Measured() if self._meter is None else self._meter.keeper.measured

    def rooms(self, state: TrainerState) -> tuple[Headroom, ...]:
        """Return what is left under the stage's limits in time, tokens, energy and money."""
        return () if self._meter is None else self._meter.rooms(state)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: where the run is in its plan, and what the stage has spent."""
        run, saved = self.run, {}
        if run.record is not None:
            saved = replace(run.record, spent=run.spent, share=run.share).plain()
            saved["keeper"] = None if self._meter is None else self._meter.keeper.state()
        return {"args": {}, "attributes": {"saved": saved}}

    # ---- events --------------------------------------------------------------------------------------------------

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin or go on with the meters of the stage."""
        run = self.run
        assert run.record is not None  # noqa: S101 - set when the state was restored
        self._ended = False
        self._meter = StageMeter(run.stage, run.record, args, kwargs.get("train_dataloader"), self._clock)
        inside = not run.start.crosses
        self._meter.begin(state, saved_state(state, ENTRY).get("keeper") if inside else None)
        ensure_entry(state, ENTRY, self.state())
        if inside and run.spent and not run.start.finished:
            control.should_training_stop = True  # only its last evaluation is still to be made
        if run.stage.trains and is_open(run.stage):
            require_lambda_schedule(kwargs.get("lr_scheduler"))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask whether the stage has room for another step."""
        run, meter = self.run, self._meter
        at_end = state.global_step >= state.max_steps
        if meter is None or run.record is None:
            return
        if control.should_training_stop and not at_end:
            control.should_log = control.should_log or control.should_evaluate
            return
        meter.close("step", state)
        found = meter.decide(state, due(control), self._closing(args))
        run.share = self._share(state, None if found is None else found.share)
        if found is not None and found.share is not None and is_open(run.stage):
            scheduler = require_lambda_schedule(kwargs.get("lr_scheduler"))
            follow_budget(scheduler, kwargs["optimizer"], found.share, OPEN_STEPS)
        if at_end or (found is not None and found.limit is not None):
            self._end(args, control)
        elif found is not None and found.postpone:
            control.should_evaluate = control.should_save = False
        elif found is not None:
            control.should_evaluate = control.should_evaluate or "evaluation" in found.probe
            control.should_save = control.should_save or "save" in found.probe
        # the rules look at the training loss beside the evaluation
        control.should_log = control.should_log or control.should_evaluate

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Do nothing twice at a boundary, and evaluate after as many epochs as the stage says."""
        if self._ended:
            control.should_evaluate = control.should_save = control.should_log = False
            return
        every = epochs_between(self.run.stage, args)
        by_epoch = args.eval_strategy == IntervalStrategy.EPOCH and not control.should_training_stop
        if by_epoch and every > 1 and round(state.epoch or 0) % every:
            control.should_evaluate = False
        control.should_log = control.should_log or control.should_evaluate

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Measure the evaluation."""
        if self._meter is not None:
            self._meter.close("evaluation", state)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Measure the save."""
        if self._meter is not None:
            self._meter.close("save", state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Say what follows."""
        record = self.run.record
        if record is None or not record.is_over or self.run.start.finished:
            return
        names = [stage.name for stage in self.run.plan]
        follows = (
            f"the plan ends, {record.reason}" if record.next_stage is None else names[record.next_stage] + " follows"
        )
        logger.info(f"stage {record.name} ends at step {state.global_step}: {record.because}; {follows}.")

    # ---- a boundary ----------------------------------------------------------------------------------------------

    def _closing(self, args: TrainingArguments) -> tuple[Phase, ...]:
        return ("evaluation", "save") if evaluates(self.run.stage, args) else ("save",)

    def _share(self, state: TrainerState, metered: float | None) -> float | None:
        run = self.run
        if run.record is None or is_open(run.stage) or not run.stage.limits():
            return metered
        first = run.record.first_step
        return max((state.global_step - first) / (state.max_steps - first), metered or 0.0)

    def _end(self, args: TrainingArguments, control: TrainerControl) -> None:
        self._ended = self.run.spent = True
        control.should_log = control.should_save = control.should_training_stop = True
        control.should_evaluate = evaluates(self.run.stage, args)
        if not control.should_evaluate:
            self.run.decide()
