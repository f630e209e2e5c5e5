"""The hooks of PlusTrainer that only a schedule of evaluations needs: subsets, the race, the best checkpoint."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from hf_trainplus import _upstream as upstream
from hf_trainplus.evaluation.rng import preserve_rng
from hf_trainplus.training import best, construction
from hf_trainplus.training.construction import preserve_mode
from hf_trainplus.training.leaving import unless_leaving
from hf_trainplus.training.stages import trainer as plans
from hf_trainplus.training.stages.hooks import StagedHooks

if TYPE_CHECKING:
    from hf_trainplus.trainer import PlusTrainer
    from hf_trainplus.training.runner import EvaluationRunner
    from hf_trainplus.training.scheduled import ScheduledEvaluations


class ScheduledHooks(StagedHooks):
    """Trainer that hands its evaluations in training to ``ScheduledEvaluations``, made when the first one is due."""

    _resumed_from: str | None = None
    stop_requested: bool

    @property
    def _runner(self) -> EvaluationRunner:
        """Evaluate rows with the weights in the model."""
        raise NotImplementedError

    def _own_loaders(self) -> AbstractContextManager[None]:
        """Plan the loaders that are asked for inside."""
        raise NotImplementedError

    @property
    def _plus(self) -> PlusTrainer:
        return cast("PlusTrainer", self)

    @cached_property
    def _scheduled(self) -> ScheduledEvaluations:
        from hf_trainplus.training.scheduled import ScheduledEvaluations

        made = ScheduledEvaluations(self, self._runner)
        made.begin(self._resumed_from)
        return made

    @property
    def _schedules(self) -> bool:
        """Whether this trainer has made a scheduled evaluation yet."""
        return "_scheduled" in self.__dict__

    def plus_is_new_best(self, metrics: dict[str, float], run_dir: str) -> bool:
        """Record a new best and ask for its checkpoint; a callback's own save survives ``save_strategy="best"``."""
        args = self.args
        if self._schedules and self._scheduled.racing:
            return self._scheduled.note_settled_best(run_dir) or bool(self.control.should_save)
        if args.metric_for_best_model is None or best.metric_key(args.metric_for_best_model) not in metrics:
            return bool(self.control.should_save)
        value = metrics[best.metric_key(args.metric_for_best_model)]
        found = best.note_best(args, self.state, self.control, value, run_dir)
        return found or bool(self.control.should_save)

    def _begin_schedules(self, resume_from_checkpoint: str | None, trial: Any) -> None:
        """Take up what the checkpoint holds of subsets and of a race, or name the best of a race that ends here."""
        self._resumed_from = resume_from_checkpoint
        if self._staged is not None and not plans.evaluates_as_before(self._plus, self._staged):
            self._settle_race_of(resume_from_checkpoint, trial)
            self._resumed_from = None
        elif getattr(self.args, "eval_mode", "race") != "race":
            self._settle_race_of(resume_from_checkpoint, trial)
        # also where nothing is evaluated before the next checkpoint, which must hold what this one does
        if self._schedules or construction.holds_subset(self._resumed_from):
            self._scheduled.begin(self._resumed_from)
        if construction.holds_race(self._resumed_from) and getattr(self.args, "eval_mode", None) == "race":
            with preserve_rng(), preserve_mode(self), self._own_loaders():
                self._scheduled.go_on_racing(self._plus.get_eval_dataloader)

    def _name_the_best(self, run_dir: str) -> None:
        resumed = self._resumed_from
        owed = construction.holds_race(resumed) or construction.holds_subset(resumed)
        if self.stop_requested or not (self._schedules or owed):
            return

        def finish() -> dict[str, Any] | None:
            with preserve_rng(), preserve_mode(self), self._own_loaders():
                if owed:
                    self._scheduled.take_up(self._plus.get_eval_dataloader)
                return self._scheduled.finish(run_dir)

        if metrics := unless_leaving(self, finish, self._runner.say_once):
            self.log(metrics)

    def _settle_race_of(self, checkpoint: str | None, trial: Any) -> None:
        """Name the best of a checkpoint's race, which this run does not go on with."""
        if not construction.holds_race(checkpoint):
            return
        from hf_trainplus.training.racing.refusals import OtherRaceError

        if self._schedules and not self._scheduled.racing:
            self._scheduled.begin(checkpoint)
        try:
            with plans.racing(self._plus):
                self._name_the_best(upstream.run_dir(self, trial))
        except OtherRaceError as error:
            self._runner.say_once(f"the best of the checkpoint's race stays unknown: {error}")

    def plus_training_ended(self, run_dir: str) -> None:
        """Delete what only this run needed, or checkpoints that are gone."""
        if self._schedules and not (self._staged is not None and self._staged.goes_on):
            self._scheduled.end(run_dir)
