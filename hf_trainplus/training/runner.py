"""One evaluation of a trainer's model: chooses the batches, runs the loop, and turns its table into metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from transformers.trainer_utils import EvalLoopOutput

from hf_trainplus import _upstream as upstream
from hf_trainplus.evaluation.accounting import LossAccount
from hf_trainplus.evaluation.bare_step import Agreement, BareStep
from hf_trainplus.evaluation.batch_list import BatchCollector
from hf_trainplus.evaluation.kept_file import KeptFile
from hf_trainplus.evaluation.left_padding import without_targets_after_padding
from hf_trainplus.evaluation.loop import BatchMatesMatter, EvaluationLeft, EvaluationLoop, LoopOutput
from hf_trainplus.evaluation.losses import LossKind, find_loss_kind
from hf_trainplus.evaluation.memory_backoff import split_batch
from hf_trainplus.evaluation.metrics.adapters import MetricReducer
from hf_trainplus.evaluation.metrics.base import Metric
from hf_trainplus.evaluation.precision import evaluation_autocast
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.rows import RowCollector
from hf_trainplus.evaluation.spool import spool_folder_from_environment
from hf_trainplus.evaluation.windows import LoadedBatch
from hf_trainplus.training.batches import BatchSource
from hf_trainplus.training.cached import CachedEvaluations
from hf_trainplus.training.foreign_batches import foreign_batches
from hf_trainplus.training.generated import EvaluationGeneration
from hf_trainplus.training.labels import labels_in_batch
from hf_trainplus.training.leaving import close_bars
from hf_trainplus.training.metric_objects import TrainerMetrics
from hf_trainplus.training.progress import EvaluationProgress
from hf_trainplus.training.request import Request
from hf_trainplus.training.result import result_of
from hf_trainplus.training.source import EvaluationSource
from hf_trainplus.training.stream_limits import stream_limit
from hf_trainplus.training.without_logits import LossWithoutLogits, loss_without_logits

if TYPE_CHECKING:
    from transformers import Trainer

LOSSES_NOT_PER_ROW = (
    "the losses of single rows are not known here (they do not reproduce the loss that the trainer computes), so each "
    "batch's loss is weighted by its number of targets"
)


class EvaluationRunner:
    """Runs evaluations for one trainer; keeps what is worth keeping between them (loaders, what was verified).

    Args:
        trainer: a trainer whose ``evaluation_loop`` calls ``run``.
        ours: the classes whose methods are not somebody else's overrides.
    """

    def __init__(self, trainer: Trainer, ours: tuple[type, ...]) -> None:
        self.trainer = trainer
        self._ours = ours
        self._batches = BatchSource(trainer, *ours)
        self.cached = CachedEvaluations(self, ours)
        self.generation = EvaluationGeneration(self, ours)
        self.progress: EvaluationProgress | None = None
        self._verified = False
        self._mates_matter = False
        self._metrics: TrainerMetrics | None = None
        self._said: set[str] = set()
        self._kept_file = KeptFile()
        self._agreements: WeakKeyDictionary[torch.nn.Module, Agreement] = WeakKeyDictionary()
        self.should_leave: Callable[[], bool] | None = None
        self.last: LoopOutput | None = None

    def run(
        self,
        loader: Any,
        description: str,
        prediction_loss_only: bool | None,
        ignore_keys: list[str] | None,
        prefix: str,
    ) -> EvalLoopOutput:
        """Evaluate, with upstream's arguments and result.

        Raises:
            EvaluationLeft: a stop was asked for.
        """
        if self.should_leave is not None and self.should_leave():  # also where the cache would answer
            raise EvaluationLeft("left after 0 batches: a stop was asked for, nothing is reported")
        loss_only = self.trainer.args.prediction_loss_only if prediction_loss_only is None else prediction_loss_only
        request = Request(loader, loss_only, description == "Prediction", ignore_keys)
        try:
            return self.evaluate(request, prefix)
        except EvaluationLeft:
            close_bars(self.trainer)
            raise

    def evaluate(self, request: Request, prefix: str) -> EvalLoopOutput:
        """Run a request and turn what was found into upstream's result."""
        found = self.cached.find(request)
        output = self.loop(request) if found is None else found
        # the predictions may be a large file on disk: only the caller, and the metrics while they run, hold them
        self.last = replace(output, predictions=None, labels=None, inputs=None)
        return self.generation.added_to(result_of(self, output, request, prefix), request, prefix, self.last)

    def loop(self, request: Request) -> LoopOutput:
        """Run the rows of a request through the model and return what was found."""
        trainer = self.trainer
        if self.generation.applies:  # what the model is told of the answer is no prediction then
            request = replace(request, loss_only=True, predicting=False)
        model = upstream.prepare_model_for_evaluation(trainer)
        with ExitStack() as stack:
            stack.enter_context(upstream.local_loss(trainer))
            model.eval()
            to_eval = getattr(trainer.optimizer, "eval", None)  # schedule-free optimizers have it
            if callable(to_eval):
                to_eval()
            if isinstance(request.loader, EvaluationSource):
                stack.enter_context(upstream.active_evaluation_loader(trainer))
            trainer.callback_handler.eval_dataloader = request.loader
            output = self._loop(request, model)
        if output.has_loss and not output.per_row:
            self.say_once(LOSSES_NOT_PER_ROW)
        self._verified = output.has_loss and output.per_row
        self._mates_matter = self._mates_matter and not self._verified
        return output

    def _loop(self, request: Request, model: Any) -> LoopOutput:
        if not self._mates_matter:
            with suppress(BatchMatesMatter):
                return self._pass(request, model)
            self._mates_matter = True
            close_bars(self.trainer)
        return self._pass(request, model)

    def _pass(self, request: Request, model: Any) -> LoopOutput:
        trainer, ranks = self.trainer, Ranks.current()
        self.progress = EvaluationProgress("Evaluating", request.row_count(), ranks=ranks.size)
        inner = trainer.accelerator.unwrap_model(model, keep_torch_compile=False)
        kind = self._formula_of(inner)
        metrics = self.metrics_of(inner)
        streaming = [] if request.loss_only else metrics.streaming
        keeps = request.predicting or bool(metrics.collected and not request.loss_only)
        skips = not keeps and not streaming and self._may_go_without_logits(kind)
        account = LossAccount(kind, trainer.label_names)
        loop = EvaluationLoop(
            step=partial(self._step, model, request.loss_only, request.ignore_keys),
            model=inner,
            account=account,
            row_losses=loss_without_logits(trainer, inner, ranks, account) if skips else None,
            bare_step=self._bare_step(model, inner, kind, request) if keeps or streaming else None,
            collector=self._collector(request) if keeps else None,
            metrics=MetricReducer(streaming, ranks) if streaming else None,
            reduce_predictions=trainer.preprocess_logits_for_metrics,
            reduce_collected=None if request.predicting else metrics.reduce,
            input_name=getattr(inner, "main_input_name", "input_ids") if self._wants("inputs") else None,
            wanted=[name for name in trainer.args.include_for_metrics if name not in ("inputs", "loss")],
            on_batch=self.on_batch,
            should_leave=self.should_leave,
            precision=partial(evaluation_autocast, self._precision(), trainer.args.device.type, model=model),
            limit=self._batches.limit,
            split=partial(split_batch, fetch=self._fetch(request.loader)),
            ranks=ranks,
        )
        apart = keeps and not trainer.args.eval_do_concat_batches
        return loop.run(self._prepared(self._choose_batches(request, kind, ranks, loop, in_order=apart), kind))

    def metrics_of(self, model: Any) -> TrainerMetrics:
        """Return the trainer's metrics; they are adapted once, until others are set."""
        if self._metrics is None or self._metrics.given is not self.trainer.compute_metrics:
            self._metrics = TrainerMetrics(self.trainer, model)
        return self._metrics

    @property
    def token_limits(self) -> dict[str, list[int | None]]:
        """The limits of ``eval_tokens_per_batch="auto"`` that were measured, as plain values."""
        return self._batches.token_limits

    def take_limits(self, saved: Mapping[str, Any]) -> None:
        """Go on with the limits that an earlier process of the run has measured."""
        self._batches.take_limits(saved)

    def own_metrics(self) -> list[Metric]:
        """Return the trainer's metric objects."""
        return list(self.metrics_of(self.trainer.model).own)

    def _choose_batches(
        self, request: Request, kind: LossKind | None, ranks: Ranks, loop: EvaluationLoop, *, in_order: bool
    ) -> Iterable[LoadedBatch]:
        if not isinstance(request.loader, EvaluationSource):
            return foreign_batches(request.loader, ranks)
        loop.regrouped = self._is_independent(kind) and not in_order
        together = ranks.size > 1 and (self._is_sharded() or self._loss_is_overridden())
        # only a loss that is known and nobody's own surely gathers no rows of other ranks
        own_loss = kind is None or self._loss_is_overridden() or not loop.regrouped
        return self._batches.of(
            request.loader,
            ranks,
            rows_are_independent=loop.regrouped,
            even_rows=ranks.size > 1 and own_loss,
            ids=request.ids,
            stream_rows=stream_limit(self.trainer, request),
            probe=None if together else partial(self._probe, loop),
            progress=self.progress,
        )

    def _probe(self, loop: EvaluationLoop, inputs: Any) -> object:
        with torch.no_grad(), loop.precision():
            if isinstance(loop.row_losses, LossWithoutLogits):
                found = loop.row_losses.alone(inputs)
                if found is not None:
                    return found
            return loop.step(dict(inputs) if isinstance(inputs, Mapping) else inputs)

    def _is_sharded(self) -> bool:
        return bool(self.trainer.is_fsdp_enabled or self.trainer.is_deepspeed_enabled)

    def rows_are_independent(self) -> bool:
        """Say whether a row's loss is known to be its own: by its formula, or because an evaluation has shown it."""
        return self._is_independent(self.loss_kind())

    def loss_kind(self) -> LossKind | None:
        """Return the formula of the model's loss, or None where it is not known."""
        return self._formula_of(self.trainer.accelerator.unwrap_model(self.trainer.model, keep_torch_compile=False))

    def _is_independent(self, kind: LossKind | None) -> bool:
        if self._mates_matter:
            return False
        return self._verified or (kind is not None and not self._loss_is_overridden())

    def _formula_of(self, model: Any) -> LossKind | None:
        smoothing = self.trainer.args.label_smoothing_factor
        return find_loss_kind(model, label_names=self.trainer.label_names, label_smoothing=smoothing)

    def _loss_is_overridden(self) -> bool:
        trainer = self.trainer
        methods = ("compute_loss", "prediction_step")
        return trainer.compute_loss_func is not None or any(
            upstream.overrides(trainer, method, *self._ours) for method in methods
        )

    def _prepared(self, batches: Iterable[LoadedBatch], kind: LossKind | None) -> Iterator[LoadedBatch]:
        shifts = kind is not None and (kind.name == "causal_lm" or getattr(kind, "shifted", False))
        for positions, real, batch in batches:
            if self.progress is not None:
                self.progress.load_batch(positions, real, batch)
            inputs = upstream.prepare_inputs(self.trainer, batch)
            if not self.trainer.label_names and hasattr(inputs, "keys"):
                self.trainer.label_names = labels_in_batch(inputs)
            if shifts:
                inputs = without_targets_after_padding(inputs)
            yield LoadedBatch(positions, real, inputs)

    def _fetch(self, loader: Any) -> Callable[[Any], Any] | None:
        read = self._batches.fetch(loader) if isinstance(loader, EvaluationSource) else None
        return None if read is None else lambda rows: upstream.prepare_inputs(self.trainer, read(rows))

    def _step(self, model: Any, loss_only: bool, ignore_keys: Any, inputs: Any) -> Any:
        with ExitStack() as stack:
            if upstream.prepares_own_inputs(self.trainer, *self._ours):
                stack.enter_context(upstream.prepared_once(self.trainer, inputs))
            return self.trainer.prediction_step(model, inputs, loss_only, ignore_keys=ignore_keys)

    def _bare_step(self, model: Any, inner: Any, kind: LossKind | None, request: Request) -> BareStep | None:
        names = self.trainer.label_names
        if not self._may_go_without_logits(kind) or names != [getattr(kind, "label_name", None)]:
            return None

        def step(inputs: Any) -> tuple[None, Any, Any]:
            labels = inputs.pop(names[0], None)
            _, logits, _ = self._step(model, False, request.ignore_keys, inputs)
            return None, logits, labels

        return BareStep(step, self._agreements.setdefault(inner, Agreement()))

    def _may_go_without_logits(self, kind: LossKind | None) -> bool:
        is_own = self._mates_matter or self._is_sharded() or self._loss_is_overridden()
        return kind is not None and kind.name == "causal_lm" and not is_own

    def on_batch(self, rows: int) -> None:
        """Tell the trainer's callbacks, and whoever reads the progress, that a batch is done."""
        trainer = self.trainer
        if self.progress is not None:
            self.progress.done(rows)
        trainer.control = trainer.callback_handler.on_prediction_step(trainer.args, trainer.state, trainer.control)

    def _collector(self, request: Request) -> RowCollector | BatchCollector:
        if not self.trainer.args.eval_do_concat_batches:
            return BatchCollector()
        total = request.row_count()
        ranks = Ranks.current().size
        spool = None if request.predicting else spool_folder_from_environment(self._kept_file)
        # every rank of several writes its own rows, and then those of all
        return RowCollector(spool, total, copies=1 if ranks == 1 else ranks + 1)

    def _precision(self) -> str | None:
        return getattr(self.trainer.args, "eval_precision", None)

    def _wants(self, name: str) -> bool:
        return name in self.trainer.args.include_for_metrics

    def say_once(self, message: str) -> None:
        """Warn on the main process, each message once."""
        if message not in self._said:
            self._said.add(message)
            if self.trainer.is_world_process_zero():
                upstream.logger.warning(message)
