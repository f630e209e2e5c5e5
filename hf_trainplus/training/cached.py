"""Evaluations of a trainer that need not be run, since the same weights have been evaluated on the same rows before."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from hf_trainplus import _upstream as upstream
from hf_trainplus.evaluation.cache import ResultCache, Summary
from hf_trainplus.evaluation.loop import LoopOutput
from hf_trainplus.evaluation.metric_values import json_safe_metrics
from hf_trainplus.evaluation.metrics.adapters.own import OwnMetric
from hf_trainplus.evaluation.metrics.base import AdditiveMetric
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.identity import Identity, UnknownIdentityError
from hf_trainplus.results import ExampleResults, Int64Array
from hf_trainplus.training.cache_identity import EvaluationIdentities

if TYPE_CHECKING:
    from torch import nn
    from transformers import TrainingArguments

    from hf_trainplus.training.request import Request
    from hf_trainplus.training.runner import EvaluationRunner

FOLDER = "trainplus_eval_cache"

Found = TypeVar("Found")


class Recognised(NamedTuple):
    """What an evaluation depends on, and the model that it runs."""

    identity: Identity
    model: nn.Module


class _Open(NamedTuple):
    """An evaluation whose results are to be kept when it has been run."""

    request: Request
    recognised: Recognised


class CachedEvaluations:
    """Answers an evaluation from ``args.eval_cache`` where that holds all of its rows, and keeps what was evaluated.

    On a hit no model runs, no metric function is called, and everything that is logged is what was logged then, but
    for times. Where it cannot be known that the result would be the same (a metric that reads a file, rows that are
    computed as they are read, a method of the trainer's own that decides over inputs, precision or loss, sharded
    weights, generation), nothing is kept, and that is said once. A failure here never fails an evaluation.

    Args:
        runner: runs the evaluations; its trainer's arguments count.
        ours: the classes whose methods are not somebody else's overrides.
        clock: seconds, monotonic.
    """

    def __init__(
        self, runner: EvaluationRunner, ours: tuple[type, ...], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._runner = runner
        self._ours = ours
        self._clock = clock
        self._identities = EvaluationIdentities(runner.trainer)
        self._open: _Open | None = None

    def find(self, request: Request) -> LoopOutput | None:
        """Return what an evaluation would find, the same on all ranks, or None when it must be run."""
        self._open = None
        if request.predicting:
            return None
        start, recognised = self._clock(), self.recognise(request)
        if recognised is None:
            return None
        ranks, identity = Ranks.current(), recognised.identity
        output = ranks.from_first(self._read(lambda cache: self._known(cache, identity, request)))
        if output is None:
            self._open = _Open(request, recognised)
            return None
        self._runner.trainer.callback_handler.eval_dataloader = request.loader
        return replace(output, seconds=self._clock() - start)

    def recognise(self, request: Request) -> Recognised | None:
        """Return what an evaluation is kept under, the same on all ranks; None when nothing is kept of it."""
        if self._folder is None:
            return None
        model, mine = self._identity(request)
        identity = self._agreed(Ranks.current().gather(mine))
        return None if identity is None or model is None else Recognised(identity, model)

    def entry(self, recognised: Recognised) -> ExampleResults | None:
        """Return every row that is known of an evaluation, the same on all ranks; None when there is none."""

        def known(cache: ResultCache) -> ExampleResults | None:
            found = cache.read(recognised.identity)
            return None if found is None else found.results

        return Ranks.current().from_first(self._read(known))

    def keep_rows(self, request: Request, recognised: Recognised, results: ExampleResults) -> Recognised:
        """Keep some rows of an evaluation that has been run since it was recognised, and recognise it anew."""
        if not self._runner.rows_are_independent():
            self._say("the losses of single rows are not known")
            return recognised
        identities = self._store(request, recognised, results, None)
        return recognised._replace(identity=identities[-1])

    def keep(self, request: Request, output: LoopOutput, metrics: Mapping[str, Any]) -> None:
        """Keep what an evaluation found that ``find`` did not know."""
        opened, self._open = self._open, None
        if opened is None or opened.request is not request:
            return
        if output.has_loss and not output.per_row:
            self._say("the losses of single rows are not known")
            return
        summary = Summary(output.has_loss, plain_metrics(metrics))
        self._store(request, opened.recognised, output.results, summary)

    def _store(
        self, request: Request, recognised: Recognised, results: ExampleResults, summary: Summary | None
    ) -> list[Identity]:
        """Keep rows under what the evaluation was and is now known as, and return these."""
        identities = [recognised.identity]
        try:
            identities = self._identities.after(recognised.identity, request, recognised.model)
            for identity in identities:
                if Ranks.current().index == 0:
                    self._cache.store(identity, results, summary)
        except Exception as error:  # what was evaluated is logged, kept or not
            self._say(f"{self._folder} could not be written ({error!r})")
        return identities

    @property
    def _folder(self) -> str | None:
        return cache_folder(self._runner.trainer.args)

    @property
    def _cache(self) -> ResultCache:
        return ResultCache(str(self._folder), warn=self._runner.say_once)

    def _say(self, reason: str) -> None:
        self._runner.say_once(f"eval_cache keeps nothing of this evaluation: {reason}")

    def _identity(self, request: Request) -> tuple[nn.Module | None, Identity | str]:
        """Return the model and the identity as this rank sees it, or why there is none."""
        refused = self._refused()
        if refused is not None:
            return None, refused
        try:
            model = self._model()
            return model, self._identities.of(request, model)
        except UnknownIdentityError as error:
            return None, str(error)
        except Exception as error:  # whatever an object raises when it is looked at, the evaluation itself can go on
            return None, f"it could not be told what it depends on ({error!r})"

    def _refused(self) -> str | None:
        trainer = self._runner.trainer
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            return "the weights are sharded over processes"
        if getattr(trainer.args, "predict_with_generate", False):
            return "it generates"
        if not trainer.args.eval_do_concat_batches and trainer.compute_metrics is not None:
            return "its metrics are given batches, whose rows depend on their number"
        for method in upstream.EVALUATING_METHODS:
            if upstream.overrides(trainer, method, *self._ours):
                return f"{type(trainer).__name__} has a {method} of its own"
        return None

    def _model(self) -> nn.Module:
        """Return the model itself, as the evaluation will find it."""
        trainer = self._runner.trainer
        model = upstream.prepare_model_for_evaluation(trainer).eval()
        swap = getattr(trainer.optimizer, "eval", None)
        if callable(swap):  # schedule-free optimizers put other weights into the model for an evaluation
            swap()
        inner: nn.Module = trainer.accelerator.unwrap_model(model, keep_torch_compile=False)
        self._runner.metrics_of(inner)  # fills in the options that only the model knows
        return inner

    def _agreed(self, everywhere: list[Identity | str]) -> Identity | None:
        for found in everywhere:
            if isinstance(found, str):
                self._say(found)
                return None
        first = everywhere[0]
        if any(found != first for found in everywhere) or isinstance(first, str):
            self._say("processes hold different weights, data or code")
            return None
        return first

    def _read(self, read: Callable[[ResultCache], Found | None]) -> Found | None:
        """Read on the first rank."""
        if Ranks.current().index != 0:
            return None
        try:
            return read(self._cache)
        except Exception as error:  # an evaluation can be run whatever lies in a folder
            self._say(f"{self._folder} could not be read ({error!r})")
            return None

    def _known(self, cache: ResultCache, identity: Identity, request: Request) -> LoopOutput | None:
        entry = cache.read(identity)
        ids = _ids(request)
        results = None if entry is None else entry.rows(ids)
        if entry is None or results is None:
            return None
        summary = entry.summary(ids) or self._from_rows(results, request)
        if summary is None:
            return None
        return LoopOutput(
            results=results.in_dataset_order(),
            predictions=None,
            labels=None,
            inputs=None,
            per_row=True,
            has_loss=summary.has_loss,
            batches=0,
            seconds=0.0,
            metrics=summary.metrics,
        )

    def _from_rows(self, results: ExampleResults, request: Request) -> Summary | None:
        """Find the metrics of rows that came from several evaluations; None where rows alone do not tell them."""
        metrics = self._runner.metrics_of(self._runner.trainer.model)
        found: dict[str, Any] = {}
        if not request.loss_only:
            if metrics.collected:
                return None
            for adapter in metrics.streaming:
                metric = adapter.metric if isinstance(adapter, OwnMetric) else None
                if not isinstance(metric, AdditiveMetric) or metric.primary not in results.statistics:
                    return None
                metric.reset()
                metric.add(results.statistics[metric.primary])
                found |= metric.compute()
        return Summary(results.loss is not None, found)


def cache_folder(args: TrainingArguments) -> str | None:
    """Return the folder that ``eval_cache`` names, or None when it is off or the arguments have no such field."""
    given = getattr(args, "eval_cache", None)
    if given is None or given is False:
        return None
    return os.path.join(str(args.output_dir), FOLDER) if given is True else str(given)


def plain_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics that can be written as JSON and are logged as the given ones are.

    Numbers of any library become Python's, and what cannot be logged becomes None.

    Example:
        >>> import numpy as np
        >>> plain_metrics({"f1": np.float64(0.5), "by": {"a": np.int64(2)}, "matrix": np.eye(2)})
        {'f1': 0.5, 'by': {'a': 2}, 'matrix': None}
    """
    return {
        str(name): plain_metrics(value)
        if isinstance(value, Mapping)
        else json_safe_metrics({"x": value}).values.get("x")
        for name, value in metrics.items()
    }


def _ids(request: Request) -> Int64Array:
    return np.arange(len(request.loader.dataset)) if request.ids is None else request.ids
