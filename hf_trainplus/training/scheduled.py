"""The evaluations that a training run schedules: all rows, a fixed subset, or a race."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import torch
from transformers.trainer_utils import EvalLoopOutput

from hf_trainplus import _upstream as upstream
from hf_trainplus.decisions.racing.saved import read_state, write_state
from hf_trainplus.decisions.subset import Subset
from hf_trainplus.results import ExampleResults
from hf_trainplus.training import best
from hf_trainplus.training.construction import SUBSET_FILE
from hf_trainplus.training.drawn_subsets import draw_subset, needs_batches, own_strategy, saved_subset
from hf_trainplus.training.gains import SubsetGains, log_gain
from hf_trainplus.training.racing.weights import changing_tensors
from hf_trainplus.training.request import Request
from hf_trainplus.training.runner import EvaluationRunner
from hf_trainplus.training.source import EvaluationSource
from hf_trainplus.training.stream_limits import stream_limit

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.training.racing.live_race import LiveRace
    from hf_trainplus.training_args import PlusTrainingArguments

_GAINS = "gains"  # in the file of the subsets, whose other names begin with eval
NONE_WATCHED = (
    "eval_mode='race' evaluates every row here: metric_for_best_model names none of the evaluation sets, so no metric "
    "decides; name one, e.g. metric_for_best_model='NAME_loss'"
)

FOREIGN_LOADER = (
    "eval_mode={!r} evaluates every row here: {} makes its evaluation loaders itself (get_eval_dataloader), whose rows "
    "cannot be chosen; select the rows of eval_dataset, e.g. with representative_subset"
)

WHOLE_STREAM = (
    "the best checkpoint is evaluated on the whole stream; a stream that has no end, which cannot always be seen, "
    "needs one: eval_dataset.take(1000)"
)


class ScheduledEvaluations:
    """Chooses how each scheduled evaluation is made; an evaluation that a person asks for is never its business.

    Args:
        trainer: the trainer; its ``args.eval_mode`` counts, and plain arguments mean full.
        runner: runs rows.
    """

    def __init__(
        self,
        trainer: Trainer,
        runner: EvaluationRunner,
    ) -> None:
        self._trainer = trainer
        self._runner = runner
        self._subsets: dict[str, Subset] = {}
        self._last: tuple[Request, str] | None = None
        self._resume_from: str | None = None
        self._gains = self._new_gains()

    @cached_property
    def race(self) -> LiveRace:
        """The race of the watched metric; made, with all that it imports, when one is asked for."""
        from hf_trainplus.training.racing.live_race import LiveRace
        from hf_trainplus.training.racing.session import RaceLimits

        made = LiveRace(self._trainer, self._runner, RaceLimits())
        made.begin(self._resume_from)
        return made

    @property
    def _args(self) -> PlusTrainingArguments:
        return cast("PlusTrainingArguments", self._trainer.args)

    @property
    def mode(self) -> str:
        """``full``, ``subset`` or ``race``."""
        return str(getattr(self._args, "eval_mode", "full"))

    @property
    def racing(self) -> bool:
        """Whether the watched metric is being raced, so that no logged level decides anything."""
        return self._has_race and self.race.session is not None

    @property
    def _has_race(self) -> bool:
        return "race" in self.__dict__

    def run(
        self, source: EvaluationSource, loss_only: bool | None, ignore_keys: list[str] | None, prefix: str
    ) -> EvalLoopOutput:
        """Evaluate as scheduled, with upstream's result."""
        only = self._args.prediction_loss_only if loss_only is None else loss_only
        request = Request(source, only, ignore_keys=ignore_keys)
        watched = self._is_watched(prefix)
        # upstream's best is never that of eval_on_start, so its evaluation is no part of the race
        races = self.mode == "race" and watched and self._trainer.state.global_step > 0
        if races and self.race.applies(request, prefix):
            observed = self.race.observe(request, prefix)
            if self.race.generates:  # it has generated for the rows that it needed
                return observed
            return self._runner.generation.added_to(observed, replace(request, scheduled=True), prefix)
        subset = self._subset(source, prefix, watched)
        if watched:
            self._last = (request, prefix)
        request = replace(request, scheduled=True, stream_rows=self._stream_rows(watched))
        if subset is not None:
            result = self._runner.evaluate(replace(request, ids=subset.indices, subset=subset), prefix)
            if subset.clusters is None and needs_batches(self._runner):
                # only an evaluation tells whose loss it is
                subset = self._subsets[prefix] = self._draw(source.dataset, None)
                result = self._runner.evaluate(replace(request, ids=subset.indices, subset=subset), prefix)
            if watched and self._trainer.state.global_step > 0:
                self._log_gain(result, subset)
            return result
        result = self._runner.evaluate(request, prefix)
        if self._draws_by_difficulty(watched) and self._runner.last is not None and hasattr(source.dataset, "__len__"):
            # now and not when it is first needed: the next checkpoint must hold it
            self._subsets[prefix] = self._draw(source.dataset, self._runner.last.results)
        return result

    def note_foreign_loader(self) -> None:
        """Say once that a loader of somebody else's is run as it is, whatever rows the mode would have chosen."""
        if self.mode != "full":
            self._runner.say_once(FOREIGN_LOADER.format(self.mode, type(self._trainer).__name__))

    def _is_watched(self, prefix: str) -> bool:
        if not isinstance(self._trainer.eval_dataset, dict):
            return True
        name = self._watched_set()
        if name is None and self.mode == "race":
            self._runner.say_once(NONE_WATCHED)
        return name is not None and best.set_prefix(f"eval_{name}") == prefix

    def _watched_set(self) -> str | None:
        key = best.metric_key(str(self._args.metric_for_best_model or "loss"))
        return best.watched_set(key, cast("dict[str, Any]", self._trainer.eval_dataset))

    # ---- subset ----
    def _subset(self, source: EvaluationSource, prefix: str, watched: bool) -> Subset | None:
        """Return the rows that stand for the set, the same every time; None for all of them.

        Sets beside a raced one are evaluated on a subset when a size was given.
        """
        if (
            not self._wants_subset(watched)
            or self._args.eval_subset_size is None
            or not hasattr(source.dataset, "__len__")
        ):
            return None
        if prefix not in self._subsets:
            if self._draws_by_difficulty(watched):
                return None  # the first evaluation covers all rows and says which are difficult
            self._subsets[prefix] = self._draw(source.dataset, None)
        return self._subsets[prefix]

    def _stream_rows(self, watched: bool) -> int | None:
        """Return how many rows of a stream stand for it; a fraction of an unknown length is no number."""
        size = getattr(self._args, "eval_subset_size", None)
        return size if self._wants_subset(watched) and isinstance(size, int) else None

    def _wants_subset(self, watched: bool) -> bool:
        return self.mode == "subset" or (self.mode == "race" and not watched)

    def _log_gain(self, result: EvalLoopOutput, subset: Subset) -> None:
        metrics, last = cast("dict[str, Any]", result.metrics), self._runner.last
        key = best.metric_key(str(self._args.metric_for_best_model or "loss"))
        if last is not None and key in metrics:
            bounds = self._gains.enter(metrics[key], last.results, subset, self._args.eval_confidence)
            log_gain(metrics, key, bounds)

    def _new_gains(self) -> SubsetGains:
        key = best.metric_key(str(getattr(self._args, "metric_for_best_model", None) or "loss"))
        name = best.own_name(key, self._trainer.eval_dataset)
        greater = bool(self._args.metric_for_best_model) and bool(self._args.greater_is_better)
        return SubsetGains(name, greater_is_better=greater)

    def _draws_by_difficulty(self, watched: bool) -> bool:
        if own_strategy(self._trainer) is not None or getattr(self._args, "eval_subset_strategy", None) != "difficulty":
            return False
        if self._args.eval_subset_size is None:
            return False
        return self._wants_subset(watched)

    def _draw(self, dataset: Any, reference: ExampleResults | None) -> Subset:
        return draw_subset(self._trainer, self._runner, dataset, reference)

    # ---- a run begins, goes on, ends ----
    def begin(self, resume_from: str | None) -> None:
        """Forget an earlier run, and take up what a checkpoint holds."""
        self._last = None
        self._resume_from = resume_from
        self._subsets, self._gains = {}, self._new_gains()
        path = os.path.join(resume_from or "", SUBSET_FILE)
        if resume_from is not None and os.path.isfile(path):
            drawn = read_state(path)
            self._gains.load_state_dict(drawn.pop(_GAINS, {}))
            self._subsets = {prefix: Subset(**arrays) for prefix, arrays in drawn.items()}
        if self._has_race:
            self.race.begin(resume_from)

    def take_up(self, source_of: Callable[[str | None], EvaluationSource]) -> None:
        """Take up what the checkpoint was about to settle, when no evaluation has done so since the resume.

        Args:
            source_of: returns the evaluation set of a name, or the only one for None.
        """
        if self.racing or self._last is not None or self.mode == "full":
            return
        name = self._watched_set() if isinstance(self._trainer.eval_dataset, dict) else None
        loss_only = self._args.prediction_loss_only or self._trainer.compute_metrics is None
        request, prefix = (
            Request(source_of(name), loss_only),
            "eval" if name is None else best.set_prefix(f"eval_{name}"),
        )
        if self.mode == "subset":
            self._last = (request, prefix)
        else:
            self.race.applies(request, prefix)

    def go_on_racing(self, source_of: Callable[[str | None], EvaluationSource]) -> None:
        """Take up the race of the checkpoint before a step is taken; a race that had stopped the run allows none.

        Args:
            source_of: returns the evaluation set of a name, or the only one for None.

        Raises:
            OtherRaceError: the checkpoint's race was over other rows or another metric.
        """
        self.take_up(source_of)
        if self.racing and self.race.stopped:
            self._trainer.control.should_training_stop = True

    def note_settled_best(self, run_dir: str) -> bool:
        """Say whether this step's checkpoint must be written because a race without reloading found it best."""
        return self.race.note_settled_best(run_dir)

    def save(self, checkpoint_dir: str) -> None:
        """Write into a checkpoint that begins what a resumed run needs."""
        if self._has_race:
            self.race.save(checkpoint_dir)
        if self._subsets and self._args.should_save:
            drawn: dict[str, Any] = {prefix: saved_subset(subset) for prefix, subset in self._subsets.items()}
            os.makedirs(checkpoint_dir, exist_ok=True)
            write_state(os.path.join(checkpoint_dir, SUBSET_FILE), drawn | {_GAINS: self._gains.state_dict()})

    def tidy(self, run_dir: str) -> None:
        """Delete what no checkpoint names any more."""
        if self._has_race:
            self.race.tidy(run_dir)

    def end(self, run_dir: str) -> None:
        """Delete what nobody needs once the run is over."""
        if self._has_race:
            self.race.end(run_dir)

    def finish(self, run_dir: str) -> dict[str, Any] | None:
        """Return the exact metrics of the best checkpoint, to be logged; None when they are known already."""
        if self.racing:
            return self.race.finish(run_dir)
        if self.mode != "subset" or self._last is None or self._trainer.state.best_model_checkpoint is None:
            return None
        request, prefix = self._last
        if not self._can_load_the_best():
            return None
        if not hasattr(request.loader.dataset, "__len__") and stream_limit(self._trainer, request) is None:
            self._runner.say_once(WHOLE_STREAM)
        metrics = self._evaluate_the_best(request, prefix)
        metrics[f"{prefix}_best_step"] = self._trainer.state.best_global_step
        return metrics

    def _can_load_the_best(self) -> bool:
        sharded = self._trainer.is_fsdp_enabled or self._trainer.is_deepspeed_enabled
        return self._args.load_best_model_at_end or not sharded

    def _evaluate_the_best(self, request: Request, prefix: str) -> dict[str, Any]:
        """Evaluate the best checkpoint on all rows; the live weights stay unless the best is to be loaded."""
        trainer = self._trainer
        model = cast("torch.nn.Module", trainer.model)
        live: dict[str, torch.Tensor] = {}
        if not self._args.load_best_model_at_end:
            live = {name: value.detach().clone() for name, value in changing_tensors(model).items()}
        upstream.load_best_model(trainer)
        try:
            return dict(cast("dict[str, Any]", self._runner.evaluate(request, prefix).metrics))
        finally:
            with torch.no_grad():
                for name, value in changing_tensors(model).items():
                    if name in live:
                        value.copy_(live[name])
