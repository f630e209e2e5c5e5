"""One evaluation of a trainer's model: chooses the batches, runs the loop, and turns its table into metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers.trainer_utils import EvalLoopOutput, EvalPrediction

from hf_trainplus import _upstream as upstream
from hf_trainplus.evaluation.accounting import LossAccount
from hf_trainplus.evaluation.left_padding import without_targets_after_padding
from hf_trainplus.evaluation.loop import EvaluationLoop, LoopOutput
from hf_trainplus.evaluation.losses import find_loss_kind
from hf_trainplus.evaluation.metric_rows import MetricRows
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.rows import RowCollector, spool_folder_from_environment
from hf_trainplus.training.batches import BatchSource
from hf_trainplus.training.foreign_batches import foreign_batches
from hf_trainplus.training.labels import labels_in_batch
from hf_trainplus.training.logged import logged_metrics
from hf_trainplus.training.metric_objects import bind_metrics, by_prediction, metric_objects, metrics_of_losses
from hf_trainplus.training.source import EvaluationSource

if TYPE_CHECKING:
    from transformers import Trainer


class EvaluationRunner:
    """Runs evaluations for one trainer; keeps what is worth keeping between them (loaders, what was verified).

    Args:
        trainer: a trainer whose ``evaluation_loop`` calls ``run``.
        ours: the classes whose methods are not somebody else's overrides.
    """

    def __init__(self, trainer: Trainer, ours: tuple[type, ...]) -> None:
        self._trainer = trainer
        self._ours = ours
        self._batches = BatchSource(trainer)
        self._verified = False
        self._masks_after_padding = False
        self._said: set[str] = set()
        self.last: LoopOutput | None = None

    def run(
        self,
        loader: Any,
        description: str,
        prediction_loss_only: bool | None,
        ignore_keys: list[str] | None,
        prefix: str,
    ) -> EvalLoopOutput:
        """Evaluate, with upstream's arguments and result."""
        trainer = self._trainer
        loss_only = trainer.args.prediction_loss_only if prediction_loss_only is None else prediction_loss_only
        model = upstream.prepare_model_for_evaluation(trainer)
        with ExitStack() as stack:
            stack.enter_context(upstream.local_loss(trainer))
            model.eval()
            if callable(getattr(trainer.optimizer, "eval", None)):
                trainer.optimizer.eval()
            if isinstance(loader, EvaluationSource):
                stack.enter_context(upstream.active_evaluation_loader(trainer))
            output = self._loop(loader, model, loss_only, ignore_keys, description == "Prediction")
        self.last = output
        return self._result(output, loader, prefix, description == "Prediction")

    # ---- the loop ----
    def _loop(self, loader: Any, model: Any, loss_only: bool, ignore_keys: Any, predicting: bool) -> LoopOutput:
        trainer, ranks = self._trainer, Ranks.current()
        trainer.callback_handler.eval_dataloader = loader
        inner = trainer.accelerator.unwrap_model(model, keep_torch_compile=False)
        kind = find_loss_kind(
            inner, label_names=trainer.label_names, label_smoothing=trainer.args.label_smoothing_factor
        )
        self._masks_after_padding = kind is not None and (kind.name == "causal_lm" or getattr(kind, "shifted", False))
        account = LossAccount(kind, trainer.label_names)
        objects = metric_objects(trainer.compute_metrics)
        bind_metrics(objects, inner, trainer.processing_class)
        loop = EvaluationLoop(
            step=lambda inputs: self._step(model, inputs, loss_only, ignore_keys),
            model=inner,
            account=account,
            collector=self._collector(loader, predicting) if predicting or not (loss_only or objects) else None,
            metrics=MetricRows(by_prediction(objects)) if by_prediction(objects) and not loss_only else None,
            reduce_predictions=trainer.preprocess_logits_for_metrics,
            input_name=getattr(inner, "main_input_name", "input_ids") if self._wants("inputs") else None,
            wanted=[name for name in trainer.args.include_for_metrics if name not in ("inputs", "loss")],
            on_batch=self._on_batch,
            ranks=ranks,
        )
        output = loop.run(self._prepared(self._choose_batches(loader, kind is not None, ranks)))
        if output.has_loss and not output.per_row:
            self._say_once(
                "the losses of single rows are not known here (they do not reproduce the loss that the trainer "
                "computes), so each batch's loss is weighted by its number of targets"
            )
        self._verified = output.has_loss and output.per_row
        return output

    def _choose_batches(self, loader: Any, formula_known: bool, ranks: Ranks) -> Iterable[Any]:
        if not isinstance(loader, EvaluationSource):
            return foreign_batches(loader, ranks)
        independent = self._verified or (formula_known and not self._loss_is_overridden())
        return self._batches.of(loader, ranks, rows_are_independent=independent)

    def _loss_is_overridden(self) -> bool:
        trainer = self._trainer
        methods = ("compute_loss", "prediction_step")
        return trainer.compute_loss_func is not None or any(
            upstream.overrides(trainer, method, *self._ours) for method in methods
        )

    def _prepared(self, batches: Iterable[Any]) -> Iterator[Any]:
        for positions, real, batch in batches:
            inputs = upstream.prepare_inputs(self._trainer, batch)
            if not self._trainer.label_names and hasattr(inputs, "keys"):
                self._trainer.label_names = labels_in_batch(inputs)
            if self._masks_after_padding:
                inputs = without_targets_after_padding(inputs)
            yield positions, real, inputs

    def _step(self, model: Any, inputs: Any, loss_only: bool, ignore_keys: Any) -> Any:
        return self._trainer.prediction_step(model, inputs, loss_only, ignore_keys=ignore_keys)

    def _on_batch(self) -> None:
        trainer = self._trainer
        trainer.control = trainer.callback_handler.on_prediction_step(trainer.args, trainer.state, trainer.control)

    def _collector(self, loader: Any, predicting: bool) -> RowCollector:
        dataset = getattr(loader, "dataset", None)
        total = len(dataset) if hasattr(dataset, "__len__") else None
        return RowCollector(None if predicting else spool_folder_from_environment(), total)

    def _wants(self, name: str) -> bool:
        return name in self._trainer.args.include_for_metrics

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            if self._trainer.is_world_process_zero():
                upstream.logger.warning(message)

    # ---- the result ----
    def _result(self, output: LoopOutput, loader: Any, prefix: str, predicting: bool) -> EvalLoopOutput:
        returned = self._agreed_metrics(output)
        dataset = getattr(loader, "dataset", None)
        total = len(dataset) if hasattr(dataset, "__len__") else len(output.results)
        confidence = getattr(self._trainer.args, "eval_confidence", 0.95)
        metrics, left_out = logged_metrics(output, returned, prefix, total=total, confidence=confidence)
        if left_out:
            self._say_once(f"kept out of the logs, since they are no single numbers: {', '.join(left_out)}")
        return EvalLoopOutput(
            predictions=output.predictions, label_ids=output.labels, metrics=metrics, num_samples=len(output.results)
        )

    def _agreed_metrics(self, output: LoopOutput) -> dict[str, Any]:
        """Compute metrics on every rank from the same rows; an error on one rank is an error on all."""
        ranks, returned, error = Ranks.current(), {}, None
        try:
            returned = self._compute_metrics(output)
        except Exception as caught:
            error = caught
        reasons = [reason for reason in ranks.gather(None if error is None else repr(error)) if reason is not None]
        if error is not None:
            raise error
        if reasons:
            raise RuntimeError(f"the metric function failed on another rank: {reasons[0]}")
        return returned

    def _compute_metrics(self, output: LoopOutput) -> dict[str, Any]:
        function = self._trainer.compute_metrics
        objects = metric_objects(function)
        if objects:
            return {**output.metrics, **metrics_of_losses(objects, output.results)}
        if function is None or output.predictions is None or output.labels is None:
            return {}
        extras: dict[str, Any] = {}
        if self._wants("inputs"):
            extras["inputs"] = output.inputs
        if self._wants("loss"):
            counts = np.maximum(output.results.target_count, 1)
            extras["losses"] = output.results.loss_sum / counts
        prediction = EvalPrediction(predictions=output.predictions, label_ids=output.labels, **extras)
        return dict(function(prediction))
