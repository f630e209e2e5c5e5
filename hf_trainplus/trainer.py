"""PlusTrainer: the Hugging Face Trainer with an evaluation that is right. It wires parts and computes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from transformers import Seq2SeqTrainer, Trainer, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import EvalLoopOutput

from hf_trainplus import _upstream as upstream
from hf_trainplus.callbacks.evaluation_progress import draw_examples
from hf_trainplus.callbacks.from_arguments import add_asked_callbacks, add_plan
from hf_trainplus.evaluation.rng import preserve_rng
from hf_trainplus.training import best, construction, interrupted, strict_state
from hf_trainplus.training.argument_values import refuse_wrong_base_order
from hf_trainplus.training.checkpoints import resuming, saving
from hf_trainplus.training.checkpoints.boundary import Boundary
from hf_trainplus.training.checkpoints.files import replace_text
from hf_trainplus.training.checkpoints.random_data import RandomDataWatch
from hf_trainplus.training.construction import preserve_mode
from hf_trainplus.training.leaving import announce, must_leave, puts_signals_back
from hf_trainplus.training.process_end import let_gloo_threads_finish
from hf_trainplus.training.scheduled_hooks import ScheduledHooks
from hf_trainplus.training.sharding import shard_input_embedding_once
from hf_trainplus.training.source import EvaluationSource
from hf_trainplus.training.stages import trainer as plans
from hf_trainplus.training.stages.streams import stages_say_when
from hf_trainplus.training.step_evaluation import FailedSets, evaluate_step

if TYPE_CHECKING:
    from hf_trainplus.budget.stages import StagePlan
    from hf_trainplus.decisions.strategies.protocol import SubsetStrategy
    from hf_trainplus.evaluation.loop import LoopOutput
    from hf_trainplus.results import ExampleResults
    from hf_trainplus.training.runner import EvaluationRunner


class PlusTrainer(ScheduledHooks):
    """Drop-in ``Trainer`` whose evaluation is token-exact, counts every row once and changes no training bit.

    With no Plus option set it trains bit-equal to ``Trainer``. It stands as the last base under any other trainer:
    ``class MyTrainer(SFTTrainer, PlusTrainer)``. It takes the arguments of ``Trainer`` (plain ``TrainingArguments`` are
    accepted too) and ``subset_strategy``, an object that draws the rows of ``eval_mode="subset"``. The keys that an
    evaluation logs are listed at ``hf_trainplus.training.logged.logged_metrics``. A ``plan`` of stages (or
    ``args.plan``) may name training data out of a mapping ``train_dataset`` and evaluation sets out of
    ``extra_eval_datasets``, which only the stages that name them evaluate.

    Raises:
        TypeError: PlusTrainer stands before another trainer among the bases, or the arguments are not of the kind that
            the other trainer needs.
        ValueError: the metric that decides belongs to none of several evaluation sets.

    Example:
        >>> import tempfile
        >>> from transformers import BertConfig, BertForSequenceClassification, TrainingArguments
        >>> config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
        ...     intermediate_size=8)
        >>> rows = [{"input_ids": [1, 2, 3], "labels": k % 2} for k in range(4)]
        >>> trainer = PlusTrainer(BertForSequenceClassification(config),
        ...     TrainingArguments(tempfile.mkdtemp(), use_cpu=True, report_to="none"), eval_dataset=rows)
        >>> metrics = trainer.evaluate()
        >>> metrics["eval_examples"], metrics["eval_targets"], metrics["eval_loss_exact"]
        (4, 4, 1.0)
    """

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        refuse_wrong_base_order(cls, PlusTrainer, Trainer)

    def __new__(cls, *args: Any, **kwargs: Any) -> PlusTrainer:
        """Refuse arguments that another trainer among the bases would rebuild as its own kind."""
        construction.check_arguments_kind(cls, PlusTrainer, args, kwargs)
        return super().__new__(cls)

    def __init__(
        self,
        *args: Any,
        subset_strategy: SubsetStrategy | None = None,
        plan: StagePlan | dict[str, Any] | str | None = None,
        extra_eval_datasets: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        args, kwargs, data = construction.take_named_sets(args, kwargs)
        with stages_say_when(args, kwargs, plan):
            super().__init__(*args, **kwargs)
        self.subset_strategy = subset_strategy
        self._inside_evaluate = self._is_scheduled = False
        self._failed_sets = FailedSets()
        self.stop_requested = self.leave_requested = False
        self.pending_error: Exception | None = None
        self._boundary, self._random_data = Boundary(), RandomDataWatch(self)
        draw_examples(self, lambda: self._runner.progress)
        let_gloo_threads_finish()
        shard_input_embedding_once(self)
        construction.complete_label_names(self)
        add_asked_callbacks(self)
        self.extra_eval_datasets = extra_eval_datasets or {}
        self._staged = add_plan(self, plan, data, self.extra_eval_datasets)
        construction.warn_of_plain_arguments(self)
        construction.require_evaluations(self)
        if isinstance(self.eval_dataset, dict):
            best.check_sets(self.eval_dataset)
            others = upstream.overrides(self, "evaluation_loop", PlusTrainer)
            best.check_watched_set(self.args, list(self.eval_dataset), metrics_of_others=others)

    @cached_property
    def _runner(self) -> EvaluationRunner:
        """Made, with all that it imports, when something is evaluated for the first time."""
        from hf_trainplus.training.runner import EvaluationRunner

        runner = EvaluationRunner(self, (PlusTrainer, PlusSeq2SeqTrainer, Seq2SeqTrainer))
        runner.should_leave = lambda: must_leave(self)
        return runner

    @property
    def example_results(self) -> ExampleResults | None:
        """Per-example results of the newest evaluation, of the rows that it read; None before there was one.

        In ``on_evaluate`` they are those of the evaluation, or of the one of several sets, that has just been logged.
        """
        last: LoopOutput | None = self.__dict__["_runner"].last if "_runner" in self.__dict__ else None
        return None if last is None else last.results

    # ---- training ----
    def train(
        self, resume_from_checkpoint: str | bool | None = None, trial: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Train as ``Trainer.train`` does; ``resume_from_checkpoint=True`` takes the newest checkpoint that is whole.

        Raises:
            ValueError: the checkpoint that was named is torn, or none is whole.
        """
        run_dir = upstream.run_dir(self, trial)
        resuming.prepare_folder(self, run_dir)
        given = resume_from_checkpoint if self._staged is None else self._staged.resume_from(resume_from_checkpoint)
        folder = resuming.choose_checkpoint(self, given, run_dir)
        train = super().train
        announce(self)

        def train_once(checkpoint: str | None) -> Any:
            self._boundary, self._random_data = Boundary(), RandomDataWatch(self)
            with puts_signals_back(self):
                return train(checkpoint, trial, *args, **kwargs)

        if self._staged is not None:
            return self._staged.train(folder, train_once, trial=trial)
        plans.refuse_forgotten_plan(folder)
        return train_once(folder)

    def get_batch_samples(self, epoch_iterator: Any, *args: Any, **kwargs: Any) -> Any:
        """Fetch the rows of a step as ``Trainer`` does, and say once when they cannot be repeated on a resume."""
        fetch = super().get_batch_samples
        return self._random_data.fetched(lambda: fetch(epoch_iterator, *args, **kwargs))

    # ---- evaluation ----
    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **kwargs: Any,
    ) -> dict[str, float]:
        """Evaluate as ``Trainer.evaluate`` does, leaving every random state as it was.

        Raises:
            EvaluationLeft: outside training, ``request_stop`` was called; nothing is logged and no callback is told.
        """
        prefix, evaluate = best.set_prefix(metric_key_prefix), super().evaluate
        goes_on = self._is_scheduled and getattr(self.args, "on_eval_error", "raise") == "continue"
        with preserve_rng(), preserve_mode(self), self._own_loaders():
            return self._failed_sets.evaluate(
                prefix, lambda: evaluate(eval_dataset, ignore_keys, prefix, **kwargs), guarded=goes_on
            )

    def predict(
        self, test_dataset: Any, ignore_keys: list[str] | None = None, metric_key_prefix: str = "test", **kwargs: Any
    ) -> Any:
        """Predict as ``Trainer.predict`` does: predictions and labels in dataset order, every row once.

        Raises:
            EvaluationLeft: outside training, ``request_stop`` was called; nothing is returned.
        """
        with preserve_rng(), preserve_mode(self), self._own_loaders():
            return super().predict(test_dataset, ignore_keys, metric_key_prefix, **kwargs)

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Run the evaluation; a foreign loader is used as it is, in arrival order."""
        if self._is_scheduled and isinstance(dataloader, EvaluationSource):
            return self._scheduled.run(dataloader, prediction_loss_only, ignore_keys, metric_key_prefix)
        if self._is_scheduled:
            self._scheduled.note_foreign_loader()
        return self._runner.run(dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return upstream's loader to everybody but PlusTrainer's own evaluation, which plans its batches itself."""
        if not self._plans_loaders("get_eval_dataloader"):
            return super().get_eval_dataloader(eval_dataset)
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(dataset, str):
            dataset = best.named_set(self.eval_dataset, dataset)
        if dataset is None:
            return super().get_eval_dataloader(eval_dataset)
        make_loader = super().get_eval_dataloader
        return EvaluationSource(dataset, "Evaluation", lambda: make_loader(cast("Any", dataset)))

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return upstream's loader to everybody but PlusTrainer's own prediction, which plans its batches itself."""
        if not self._plans_loaders("get_test_dataloader"):
            return super().get_test_dataloader(test_dataset)
        return EvaluationSource(
            test_dataset, "test", lambda: super(PlusTrainer, self).get_test_dataloader(test_dataset)
        )

    def _plans_loaders(self, method: str) -> bool:
        others = upstream.overrides(self, method, PlusTrainer) or upstream.chooses_own_rows(self)
        return self._inside_evaluate and not others

    @contextmanager
    def _own_loaders(self) -> Iterator[None]:
        outermost = not self._inside_evaluate
        try:
            with construction.flag(self, "_inside_evaluate"):
                yield
        finally:
            if outermost:  # a request that came too late must not end the next evaluation
                self.leave_requested = False

    def request_stop(self) -> None:
        """Leave a running evaluation between two batches and report nothing of it; from any thread, on one rank.

        In a training run the model is saved and the training ends. The checkpoint is marked, so that a resumed run
        makes the evaluation first. While no evaluation runs it does nothing until the next one; ``BudgetCallback`` ends
        a run at a step. Outside training, the ``evaluate`` or ``predict`` that runs, or else the next one, raises
        ``EvaluationLeft`` on every rank; the one after that runs as always.
        """
        self.stop_requested, self.leave_requested = True, not self.is_in_train

    # ---- hooks into upstream's training loop ----
    def plus_evaluate(self, run: Any) -> dict[str, float]:
        """Evaluate at a step of the run; an evaluation that fails never costs the training."""
        scheduled, runner = super().plus_evaluate, self._runner
        return evaluate_step(
            self,
            lambda: scheduled(run),
            self._failed_sets,
            self._staged,
            is_complete=lambda: not runner.generation.left_out,
        )

    def plus_saving(self, final: str) -> AbstractContextManager[str]:
        """Write a checkpoint under another name until it is whole."""
        return saving.staged(self, final, lambda: self._boundary.state(self))

    def plus_boundary(self, grad_norm: Any, learning_rate: float | None) -> None:
        """Note where the loop stands, for a checkpoint that is written here."""
        self._boundary.enter(self.state.global_step, grad_norm, learning_rate)

    def plus_train_loss(self) -> float | None:
        """Return the mean training loss over all sessions of the run."""
        return self._boundary.train_loss(self)

    def plus_checkpoint_begins(self, checkpoint_dir: str) -> None:
        """Write what a resumed run needs to go on with the same decisions."""
        interrupted.mark(self, checkpoint_dir)
        if self._schedules:
            self._scheduled.save(checkpoint_dir)

    def plus_training_ends(self, run_dir: str) -> None:
        """Name the best of a race, evaluate the winner on all rows, and log it."""
        if self._staged is not None:
            plans.loop_ends(self, self._staged, run_dir)
            if self._staged.goes_on:
                return
        self._name_the_best(run_dir)

    def plus_checkpoint_saved(self, checkpoint_dir: str) -> None:
        """Delete what no checkpoint needs any more."""
        if self._staged is not None:
            self._staged.saved(checkpoint_dir)
        saving.tidy(self, os.path.dirname(checkpoint_dir))
        if self._schedules:
            self._scheduled.tidy(os.path.dirname(checkpoint_dir))

    def save_state(self) -> None:
        """Save the state as upstream does, as strict JSON, in one step."""
        if self.is_world_process_zero():
            os.makedirs(str(self.args.output_dir), exist_ok=True)
            replace_text(os.path.join(str(self.args.output_dir), TRAINER_STATE_NAME), strict_state.text_of(self.state))

    def plus_state_loaded(self) -> None:
        """Restore what the strict file spelled out, before upstream hands callbacks their part."""
        strict_state.restore_state(self.state)

    def plus_training_starts(self, resume_from_checkpoint: str | None, trial: Any, ignore_keys: Any) -> None:
        """Evaluate a step whose evaluation is still to be done."""
        self.stop_requested = self.leave_requested = False
        self._begin_schedules(resume_from_checkpoint, trial)
        if resume_from_checkpoint is None:
            return
        loop = self._boundary.take_up(self, resume_from_checkpoint)
        interrupted.make_up(self, resume_from_checkpoint, trial, ignore_keys)
        if self._staged is not None:
            plans.settle(self, self._staged, resume_from_checkpoint)
        start = None if self._staged is None else self._staged.start
        goes_on = start is None or not (start.crosses or start.finished)
        if loop is not None and goes_on and self._boundary.owes_epoch_end(self):
            upstream.end_epoch(self, resume_from_checkpoint, trial, loop.grad_norm, loop.learning_rate)


class PlusSeq2SeqTrainer(Seq2SeqTrainer, PlusTrainer):
    """``PlusTrainer`` with the generation of ``Seq2SeqTrainer`` in evaluation.

    Example:
        >>> issubclass(PlusSeq2SeqTrainer, PlusTrainer)
        True
    """


__all__ = ["PlusSeq2SeqTrainer", "PlusTrainer", "TrainingArguments"]
