"""One run of a plan: every stage is one training loop that starts from the checkpoint at the boundary before it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hf_trainplus import _upstream as upstream
from hf_trainplus.budget.plans.stage import Stage
from hf_trainplus.budget.plans.stage_history import StageHistory
from hf_trainplus.budget.stages import StagePlan
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.training.checkpoints.search import newest_first
from hf_trainplus.training.leaving import urgent_stop_seen
from hf_trainplus.training.run_size import data_seed, device_count
from hf_trainplus.training.stages import moments, position
from hf_trainplus.training.stages.arguments import applied, stage_arguments
from hf_trainplus.training.stages.boundaries import boundary_dir, keep_boundary, may_fall_back_to
from hf_trainplus.training.stages.data import StageData, rows_of
from hf_trainplus.training.stages.freezing import freeze_all_but, trainable_names
from hf_trainplus.training.stages.history import evaluations_since
from hf_trainplus.training.stages.options import stage_options
from hf_trainplus.training.stages.order import fixed_order
from hf_trainplus.training.stages.record import StageRecord, read_record
from hf_trainplus.training.stages.start import Start, find_start
from hf_trainplus.training.stages.zero_crossing import ZeroCrossing

if TYPE_CHECKING:
    from torch import nn
    from transformers import Trainer

Output = TypeVar("Output")


class StagedRun:
    """Goes through the stages of a plan, and answers the trainer's questions about the stage that runs.

    What the next stage starts from is the checkpoint at the boundary, in this process as after a relaunch: so both
    give the same bits at equal world size.

    Args:
        trainer: its arguments, data and optimizer are set for each stage, and put back at the end.
        plan: the stages.
        data: training data by stage.
        only: the one stage that this process runs, None for all that are left.

    Raises:
        ValueError: a stage freezes what is not there.
    """

    def __init__(self, trainer: Trainer, plan: StagePlan, data: StageData, *, only: str | None = None) -> None:
        self.trainer, self.plan, self.data, self.only = trainer, plan, data, only
        self._trainable = {name: one.requires_grad for name, one in self._model.named_parameters()}
        for stage in plan:
            trainable_names(self._trainable, stage.freeze or (), stage.name)
        self.zero = ZeroCrossing(trainer)
        self.own_optimizer = trainer.optimizer is not None
        self.before_stage: Callable[[], None] = lambda: None
        self.start = Start(0)
        self.record: StageRecord | None = None
        self.spent, self.share, self.leaves = False, cast("float | None", None), False
        self.entry: Callable[[], dict[str, Any]] = dict
        self._boundary: str | None = None
        self._schedule: moments.Schedule | None = None
        self._order: Any = None
        self._sets: dict[int, Any] = {}

    @property
    def stage(self) -> Stage:
        """The stage that runs."""
        return self.plan.stages[self.start.stage]

    @property
    def goes_on(self) -> bool:
        """Whether another stage follows the one that has ended."""
        return self.record is not None and self.record.next_stage is not None

    @property
    def _model(self) -> nn.Module:
        return cast("nn.Module", self.trainer.model)

    # ---- the run -------------------------------------------------------------------------------------------------

    def resume_from(self, given: str | bool | None) -> str | bool | None:
        """Return what to resume from: a process that runs one stage goes on from the newest checkpoint by itself."""
        if given is None and self.only is not None:
            folder = str(self.trainer.args.output_dir)
            return bool(newest_first(folder))
        return given

    def train(self, checkpoint: str | None, train_once: Callable[[str | None], Output], *, trial: Any = None) -> Output:
        """Run what is left of the plan.

        Args:
            checkpoint: folder to resume from, None to begin.
            train_once: runs upstream's training loop from a checkpoint.
            trial: of a search for hyper-parameters, which a plan is not run in.

        Returns:
            What the last stage returned.

        Raises:
            ValueError: the checkpoint contradicts the plan, its next stage is another one than this process runs, or
                the run is one of a search.
        """
        if trial is not None:
            raise ValueError(
                "a search for hyper-parameters sets what a plan says for each stage; search without plan=..., and run "
                "the plan with what was found."
            )
        next_start: Start | None = self._find(checkpoint)
        try:
            while next_start is not None:
                self.start = next_start
                output = self._run(train_once)
                next_start = self._next()
        finally:
            self.trainer.train_dataset = self.data.first
            freeze_all_but(self._model, {name for name, trains in self._trainable.items() if trains})
        return output

    def _find(self, checkpoint: str | None) -> Start:
        record = None if checkpoint is None else read_record(checkpoint)
        keep = getattr(self.trainer.args, "plan_on_resume", "keep") == "keep"
        found = find_start(self.plan, checkpoint, record, self._options, replace=not keep)
        name = self.plan.stages[found.stage].name
        if self.only is not None and not found.finished and name != self.only:
            raise ValueError(
                f"TRAINPLUS_STAGE={self.only!r}, and the next stage of {checkpoint or 'a fresh run'} is {name!r}. "
                "Start the stages through `trainplus run`, which looks it up."
            )
        return found

    def _next(self) -> Start | None:
        record = self.record
        if record is None or record.next_stage is None or self.only is not None:
            return None
        if self.leaves or urgent_stop_seen(self.trainer):
            return None
        return Start(record.next_stage, self._boundary, record=record)

    def _run(self, train_once: Callable[[str | None], Output]) -> Output:
        trainer, start, before = self.trainer, self.start, self.start.record
        if start.crosses and before is not None and may_fall_back_to(self.plan, before.name):
            folder = str(trainer.args.output_dir)
            keep_boundary(str(start.checkpoint), folder, before.name, writes=trainer.args.should_save)
        self.record, self.spent, self.share, self.leaves = None, False, None, False
        trainer.train_dataset = self._rows(start.stage)
        if not self.own_optimizer:
            upstream.forget_optimizer(trainer)
        fields = stage_arguments(self.stage, trainer.args, device_count(trainer.args))
        if start.finished:
            fields |= {"max_steps": -1, "num_train_epochs": 0}
        if start.checkpoint is not None:
            fields["eval_on_start"] = False
        kept = {name: getattr(trainer.args, name) for name in ("load_best_model_at_end", "save_total_limit")}
        with applied(trainer.args, {**kept, **fields}):
            upstream.set_train_batch_size(trainer)
            self.before_stage()
            output = train_once(start.checkpoint)
        upstream.set_train_batch_size(trainer)
        return output

    def _rows(self, stage: int) -> Any:
        if stage not in self._sets:
            self._sets[stage] = self.data.of(self.plan.stages[stage], self.trainer.args)
        return self._sets[stage]

    def _options(self, stage: int) -> Any:
        return stage_options(self.plan.stages[stage], self.trainer.args, rows_of(self._rows(stage)))

    # ---- what the training loop asks -----------------------------------------------------------------------------

    def loop_begins(self) -> None:
        """Choose the parameters that train; the model is placed and wrapped after it."""
        stage = self.stage
        freeze_all_but(self._model, trainable_names(self._trainable, stage.freeze or (), stage.name))

    def state_restored(self, max_steps: int, update_steps_an_epoch: int) -> tuple[int, int]:
        """Enter the stage into the state; return the epochs and the batches of the next one that are done in it."""
        self.record = self._enter()
        self.spent, self.share = self.record.spent, self.record.share
        return position.settle(self.trainer, self.start, self.record, max_steps, update_steps_an_epoch)

    def _enter(self) -> StageRecord:
        before, state = self.start.record, self.trainer.state
        if not self.start.crosses and before is not None:
            return replace(before, plan=self.plan.to_dict())
        visits = {} if before is None else dict(before.visits)
        name = self.stage.name
        visits[name] = visits.get(name, 0) + 1
        return StageRecord(
            plan=self.plan.to_dict(),
            stage=self.start.stage,
            name=name,
            first_step=state.global_step,
            first_tokens=int(state.num_input_tokens_seen),
            options={} if not self.stage.trains else self._own_options,
            visits=visits,
            falls={} if before is None else before.falls,
        )

    @property
    def _own_options(self) -> Any:
        # inside the stage its settings are the arguments' own, so that they are read the same way twice
        return stage_options(self.stage, self.trainer.args, rows_of(self.trainer.train_dataset))

    def weights_from(self, checkpoint: str) -> str:
        """Return the folder whose weights and moments the loop starts from: another one after a fall back.

        Raises:
            ValueError: the boundary that the plan fell back to is gone.
        """
        before, start = self.start.record, self.start
        fell = start.crosses and before is not None and before.weights_from is not None
        if not fell or before is None or checkpoint != start.checkpoint:
            return checkpoint
        folder = boundary_dir(str(self.trainer.args.output_dir), str(before.weights_from))
        if not os.path.isdir(folder):
            raise ValueError(f"the plan fell back to the boundary of {before.weights_from!r}, and {folder} is gone.")
        return folder

    def load_optimizer(self, checkpoint: str) -> bool:
        """Carry moments over a boundary; say False where upstream's own loading is right."""
        if self.start.finished:
            return not self.trainer.is_deepspeed_enabled
        if self.start.crosses:
            moments.cross(self.trainer, checkpoint, self._schedule)
        return self.start.crosses

    def schedule_made(self, scheduler: Any, optimizer: Any) -> None:
        """Remember the stage's schedule as it begins: what is loaded after it belongs to the stage before."""
        self._schedule = moments.Schedule.of(scheduler, optimizer)

    def prepared(self) -> None:
        """Name the optimizer's parameters, for the checkpoints of this stage."""
        if not self.trainer.is_deepspeed_enabled and not self.trainer.is_fsdp_enabled:
            moments.name_parameters(self.trainer.optimizer, self._model)

    def sampler(self, sampler: Any) -> Any:
        """Return the training sampler with an order that depends on seed, stage and epoch alone."""
        args, again = self.trainer.args, {} if self.start.record is None else self.start.record.visits
        times = again.get(self.stage.name, 0) - (not self.start.crosses)
        seed = data_seed(args)
        self._order = fixed_order(sampler, (seed, self.start.stage, *([times] if times > 0 else [])))
        return self._order

    def epoch_begins(self, epoch: int) -> None:
        """Tell the sampler its epoch, however deep the loaders around it are."""
        if hasattr(self._order, "set_epoch"):
            self._order.set_epoch(epoch)

    # ---- what ends a stage ---------------------------------------------------------------------------------------

    def evaluated(self) -> bool:
        """Ask the plan's rules after an evaluation; say whether the stage is over."""
        record = self.record
        if record is None or record.is_over:
            return False
        if self.stage.trains and self.trainer.state.global_step == record.first_step:
            return False
        return self.decide()

    def decide(self) -> bool:
        """Ask the plan's rules, the same on all ranks; say whether the stage is over."""
        record, state = self.record, self.trainer.state
        if record is None or record.is_over:
            return False
        history = StageHistory(
            evaluations_since(state.log_history, record.first_step, at_first=not self.stage.trains),
            budget_share=self.share,
            budget_spent=self.spent,
            falls=record.falls.get(record.name, 0),
        )
        decision = Ranks.current().from_first(self.plan.decide(record.stage, history))
        record = replace(record, spent=self.spent, share=self.share, because=decision.because)
        if decision.action == "begin":
            record = replace(record, next_stage=decision.stage)
            if decision.stage is not None and decision.stage < record.stage:
                falls = {**record.falls, record.name: record.falls.get(record.name, 0) + 1}
                record = replace(record, weights_from=self.plan.stages[decision.stage].name, falls=falls)
        elif decision.reason is not None:
            record = replace(record, reason=decision.reason.value)
        self.record = record
        return record.is_over

    def saved(self, checkpoint: str) -> None:
        """Note the checkpoint of a boundary: the next stage starts from it."""
        if self.record is not None and self.record.is_over:
            self._boundary = checkpoint

    def loop_ends(self) -> None:
        """Keep upstream's last acts for the end of the plan, and the last checkpoint, which says that it is over."""
        args = self.trainer.args
        if self.goes_on:
            args.load_best_model_at_end = False
        args.save_total_limit = None
