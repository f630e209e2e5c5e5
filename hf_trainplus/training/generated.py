"""Generation in a trainer's evaluation: when it is due, for which rows, and what is logged of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch
from transformers import Seq2SeqTrainer
from transformers.trainer_utils import EvalLoopOutput

from hf_trainplus import _upstream as upstream
from hf_trainplus.decisions.subset import Subset
from hf_trainplus.evaluation.generate_batch import GenerationSettings
from hf_trainplus.evaluation.generated_ids import FilledIds
from hf_trainplus.evaluation.generation import GenerationLoop, GenerationOutput
from hf_trainplus.evaluation.loop import LoopOutput
from hf_trainplus.evaluation.memory_backoff import split_batch
from hf_trainplus.evaluation.metrics.adapters import MetricReducer
from hf_trainplus.evaluation.metrics.adapters.functions import BatchFunctionMetric
from hf_trainplus.evaluation.precision import evaluation_autocast
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.rows import RowCollector
from hf_trainplus.evaluation.windows import LoadedBatch
from hf_trainplus.results import ExampleResults
from hf_trainplus.training.foreign_batches import foreign_batches
from hf_trainplus.training.generated_metrics import GeneratedMetrics, table_of
from hf_trainplus.training.generation_rows import GenerationRows, chosen_of, drawn_rows
from hf_trainplus.training.generation_settings import generation_settings
from hf_trainplus.training.progress import EvaluationProgress
from hf_trainplus.training.source import EvaluationSource
from hf_trainplus.training.stream_limits import stream_limit

if TYPE_CHECKING:
    from hf_trainplus.training.request import Request
    from hf_trainplus.training.runner import EvaluationRunner

TEACHER_FORCED = ("loss", "perplexity")
"""Metrics that stay those of the right answers when everything else is of generated ids."""


@dataclass(frozen=True)
class _Rows:
    """Which rows are generated for.

    Args:
        ids: their positions; None for all.
        subset: how they stand for the whole set; None when they are all of it.
        stream_rows: most rows of a stream; None for all.
    """

    ids: npt.NDArray[np.int64] | None
    subset: Subset | None
    stream_rows: int | None = None


class EvaluationGeneration:
    """Adds to an evaluation what the model generates by itself, beside the teacher-forced loss of all rows.

    Under ``predict_with_generate`` the trainer's metrics are given generated ids only, and the loss stays the one that
    every evaluation has. A ``Seq2SeqTrainer`` whose ``prediction_step`` somebody overrides generates in its own way
    and is left alone.

    Args:
        runner: runs the evaluations; its trainer's arguments count.
        ours: the classes whose methods are not somebody else's overrides.
    """

    def __init__(self, runner: EvaluationRunner, ours: tuple[type, ...]) -> None:
        self._runner = runner
        self._ours = ours
        self._rows: GenerationRows | None = None
        self.left_out = False

    @property
    def applies(self) -> bool:
        """Whether the trainer's metrics are those of generated ids."""
        trainer = self._runner.trainer
        if not getattr(trainer.args, "predict_with_generate", False):
            return False
        return not (isinstance(trainer, Seq2SeqTrainer) and upstream.overrides(trainer, "prediction_step", *self._ours))

    def added_to(
        self, found: EvalLoopOutput, request: Request, prefix: str, losses: LoopOutput | None = None
    ) -> EvalLoopOutput:
        """Generate where it is due, and add the metrics (and predictions, where they are wanted) to what was found.

        Args:
            found: the teacher-forced evaluation.
            request: what was asked for.
            prefix: put before every key.
            losses: the table of that evaluation, for metrics that ask for losses; None when there is none.
        """
        self.left_out = False
        if request.loss_only or not self.applies:
            return found
        if request.scheduled and not self._is_due(prefix):
            self.left_out = True
            return found
        rows = self._chosen(request)
        request = replace(request, stream_rows=rows.stream_rows)
        output, pad_id = self._generated(request, rows)
        return GeneratedMetrics(self._runner, pad_id).added_to(
            found, output, request, prefix, subset=rows.subset, losses=losses
        )

    def races(self, name: str) -> bool:
        """Say whether a metric is computed on generated ids."""
        return self.applies and name not in TEACHER_FORCED

    def why_not_raced(self) -> str | None:
        """Return why the generated metrics of a run cannot be raced; None when they can."""
        for name in ("generation_eval_steps", "generation_eval_size"):
            value = getattr(self._runner.trainer.args, name, None)
            if value is not None:
                return f"{name}={value} leaves evaluations or rows without the watched metric; leave it out for a race"
        return None

    def scores_of(self, request: Request) -> ExampleResults:
        """Generate for a request's rows, and return what each row scored; nothing is logged.

        Args:
            request: its ``ids`` are generated for.
        """
        output, _ = self._generated(request, _Rows(request.ids, request.subset))
        return table_of(output)

    def _generated(self, request: Request, rows: _Rows) -> tuple[GenerationOutput, int]:
        """Generate for rows; return what was found, and the padding id."""
        model = upstream.prepare_model_for_evaluation(self._runner.trainer)
        model.eval()
        inner = self._runner.trainer.accelerator.unwrap_model(model, keep_torch_compile=False)
        settings = self._settings(inner)
        with _whole_weights(model):
            return self._loop(request, rows, inner, settings), settings.pad_id

    def _is_due(self, prefix: str) -> bool:
        """Say whether another ``generation_eval_steps`` steps are over since this set was last generated for.

        The log says when that was, so that a resumed run goes on as the uninterrupted one.
        """
        state, steps = self._runner.trainer.state, getattr(self._runner.trainer.args, "generation_eval_steps", None)
        if steps is None or state.global_step == 0:
            return True
        key = f"{prefix}_generation_examples"
        last = max((int(entry["step"]) for entry in state.log_history if key in entry), default=0)
        return bool(state.global_step // steps > last // steps)

    def _settings(self, model: Any) -> GenerationSettings:
        if not callable(getattr(model, "generate", None)):
            raise ValueError(
                f"predict_with_generate=True and {type(model).__name__} has no generate(); allowed are models with a "
                "language modeling head. Set predict_with_generate=False."
            )
        settings = generation_settings(self._runner.trainer, model)
        if settings.max_new_tokens is None and settings.max_length is None:
            self._runner.say_once(
                "predict_with_generate=True and nothing says how long an answer may be, so upstream's 20 new tokens "
                "are the most; set generation_max_new_tokens"
            )
        return settings

    def _chosen(self, request: Request) -> _Rows:
        limit = stream_limit(self._runner.trainer, request)
        if request.predicting:
            return _Rows(request.ids, request.subset, limit)
        args, dataset = self._runner.trainer.args, getattr(request.loader, "dataset", None)
        size = getattr(args, "generation_eval_size", None)
        drawn = drawn_rows(dataset, size, int(args.seed))
        if drawn is not None:
            return _Rows(drawn.indices, drawn)
        if not hasattr(dataset, "__len__") and size is not None:
            limit = min(int(size), limit or int(size))
        return _Rows(request.ids, request.subset, limit)

    def _loop(self, request: Request, rows: _Rows, model: Any, settings: GenerationSettings) -> GenerationOutput:
        trainer, ranks = self._runner.trainer, Ranks.current()
        metrics = self._runner.metrics_of(model)
        streaming = [
            FilledIds(one, settings.pad_id) if isinstance(one, BatchFunctionMetric) else one
            for one in metrics.streaming
        ]
        if self._rows is None:
            self._rows = GenerationRows(trainer, *self._ours, is_encoder_decoder=settings.is_encoder_decoder)
        batches = self._batches(request, rows, self._rows, ranks)
        wants_inputs = "inputs" in trainer.args.include_for_metrics
        is_own = isinstance(request.loader, EvaluationSource)
        precision = getattr(trainer.args, "eval_precision", None)
        progress = self._runner.progress = EvaluationProgress("Generating", _count(request, rows), ranks=ranks.size)

        def on_batch(done: int, tokens: int) -> None:
            progress.load(done, tokens=tokens)
            self._runner.on_batch(done)

        loop = GenerationLoop(
            model,
            settings,
            metrics=MetricReducer(streaming, ranks) if streaming else None,
            collector=RowCollector() if request.predicting or metrics.collected else None,
            input_name=getattr(model, "main_input_name", "input_ids") if wants_inputs else None,
            on_batch=on_batch,
            should_leave=self._runner.should_leave,
            precision=partial(evaluation_autocast, precision, trainer.args.device.type, model=model),
            limit=self._rows.limit,
            split=partial(split_batch, fetch=self._fetch(request.loader, self._rows) if is_own else None),
            ranks=ranks,
        )
        return loop.run(self._prepared(batches))

    def _batches(self, request: Request, rows: _Rows, loaders: GenerationRows, ranks: Ranks) -> Iterable[LoadedBatch]:
        if isinstance(request.loader, EvaluationSource):
            return loaders.of(request.loader, rows.ids, ranks, stream_rows=rows.stream_rows)
        batches = foreign_batches(request.loader, ranks)
        if rows.ids is None and rows.stream_rows is None:
            return batches
        return chosen_of(batches, rows.ids if rows.ids is not None else np.arange(cast("int", rows.stream_rows)), ranks)

    def _prepared(self, batches: Iterable[LoadedBatch]) -> Iterator[LoadedBatch]:
        for batch in batches:
            yield batch._replace(inputs=upstream.prepare_inputs(self._runner.trainer, batch.inputs))

    def _fetch(self, source: EvaluationSource, loaders: GenerationRows) -> Any:
        read = loaders.fetch(source)
        return None if read is None else lambda rows: upstream.prepare_inputs(self._runner.trainer, read(rows))


def _count(request: Request, rows: _Rows) -> int | None:
    if rows.ids is not None:
        return len(rows.ids)
    dataset: Any = getattr(request.loader, "dataset", None)
    return len(dataset) if hasattr(dataset, "__len__") else rows.stream_rows


def _whole_weights(model: Any) -> AbstractContextManager[Any]:
    """Gather the weights that ``FullyShardedDataParallel`` shards: ``generate`` runs outside its ``forward``."""
    if torch.distributed.is_available():
        from torch.distributed.fsdp import FullyShardedDataParallel

        if isinstance(model, FullyShardedDataParallel):
            return FullyShardedDataParallel.summon_full_params(model, writeback=False)
    return nullcontext()
