"""Make the session of a race at the first evaluation, or say why every row is evaluated."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from hf_trainplus.decisions.race import OpaqueMetric, Race, RaceConfig, RaceMetric
from hf_trainplus.results import ExampleResults, Int64Array
from hf_trainplus.training.construction import holds_race
from hf_trainplus.training.racing import patience, weights
from hf_trainplus.training.racing.audit import DecisionLog
from hf_trainplus.training.racing.cached_rows import CachedRows
from hf_trainplus.training.racing.driver import LiveDriver
from hf_trainplus.training.racing.readings import environment_of, label_codes
from hf_trainplus.training.racing.refusals import FUNCTION_AT_END, JACKKNIFE, Watched, why_not
from hf_trainplus.training.racing.session import RaceLimits, RaceSession
from hf_trainplus.training.racing.watched import NotRaced, may_count_tokens, race_metric
from hf_trainplus.training.request import Request
from hf_trainplus.training.run_size import data_seed
from hf_trainplus.training.runner import EvaluationRunner

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.training_args import PlusTrainingArguments


@dataclass(frozen=True)
class Started:
    """A race that may begin.

    Args:
        session: race, driver and log.
        weights: keeps candidates; None where they cannot be loaded again.
        patience: the early stopping that the race has taken over.
    """

    session: RaceSession
    weights: weights.CandidateWeights | None
    patience: patience.TakenPatience


class RaceStart:
    """Makes the session of one run's race.

    Args:
        trainer: the trainer.
        runner: runs rows with the weights in the model.
        limits: when a race is not worth it.
        evaluate_rows: evaluates rows of a request, given by position, in the order of the dataset.
        resume_from: checkpoint that the run goes on from, or None.
    """

    def __init__(
        self,
        trainer: Trainer,
        runner: EvaluationRunner,
        limits: RaceLimits,
        evaluate_rows: Callable[[Request, Int64Array], ExampleResults],
        resume_from: str | None,
    ) -> None:
        self._trainer = trainer
        self._args = cast("PlusTrainingArguments", trainer.args)
        self._runner = runner
        self._limits = limits
        self._evaluate_rows = evaluate_rows
        self._resume_from = resume_from
        self._watched = Watched.by(trainer)

    def make(self, request: Request) -> Started | str:
        """Return what the race runs with, or why it cannot help; a first batch is evaluated where only that tells.

        Args:
            request: the evaluation that would be raced.
        """
        probe = self._probe(request)
        reason = why_not(self._trainer, self._runner, request.loader.dataset, self._watched, self._resume_from)
        if reason is not None:
            return reason
        metric, probe = self._metric(request, probe)
        if isinstance(metric, NotRaced):
            return metric.reason
        self._announce(request, metric)
        kept, taken = self._candidate_weights(), patience.take_patience(self._trainer, self._runner.say_once)
        race = self._race(request, metric, self._config(taken, reload=kept is not None))
        generates = self._runner.generation.races(self._watched.name)
        cache = None if generates else CachedRows(self._runner.cached, request)
        driver = LiveDriver(lambda rows: self._evaluate_rows(request, rows), kept, cache=cache)
        if probe is not None:
            driver.learn(self._trainer.state.global_step, probe)
        return Started(RaceSession(race, driver, self._log(), self._runner.say_once), kept, taken)

    # ---- what is raced ----
    def _probe(self, request: Request) -> ExampleResults | None:
        """Evaluate some rows where only that shows whether a row's loss is its own, as under another trainer."""
        if not hasattr(request.loader.dataset, "__len__") or self._runner.rows_are_independent():
            return None
        return self._first_rows(request)

    def _first_rows(self, request: Request) -> ExampleResults:
        dataset, args = request.loader.dataset, self._args
        return self._evaluate_rows(request, np.arange(min(args.eval_batch_size * args.world_size, len(dataset))))

    def _metric(
        self, request: Request, probe: ExampleResults | None
    ) -> tuple[RaceMetric | NotRaced, ExampleResults | None]:
        """Return what is compared; whether a metric counts tokens may show in the first rows only."""
        watched, objects = self._watched, self._runner.own_metrics()
        kind = self._runner.loss_kind()
        unclear = may_count_tokens(watched.name, objects, None if kind is None else kind.name)
        if unclear and probe is None:
            probe = self._first_rows(request)
        metric = race_metric(
            watched.name,
            objects,
            greater_is_better=watched.greater_is_better,
            rows=len(request.loader.dataset),
            by_token=unclear and probe is not None and watched.name not in probe.scores,
        )
        return metric, probe

    def _announce(self, request: Request, metric: RaceMetric) -> None:
        if self._runner.metrics_of(self._trainer.model).collected and not request.loss_only:
            self._runner.say_once(FUNCTION_AT_END)
        if isinstance(metric, OpaqueMetric):
            self._runner.say_once(JACKKNIFE.format(metric.name))

    # ---- with what ----
    def _race(self, request: Request, metric: RaceMetric, config: RaceConfig) -> Race:
        dataset = request.loader.dataset
        return Race(
            metric,
            len(dataset),
            config,
            labels=label_codes(dataset, self._args.eval_label_column),
            fingerprint=getattr(dataset, "_fingerprint", None),
            environment=environment_of(self._args),
        )

    def _config(self, taken: patience.TakenPatience, *, reload: bool) -> RaceConfig:
        args = self._args
        return RaceConfig(
            strict=args.eval_race_strict,
            patience=taken.patience,
            threshold=taken.threshold,
            tolerance=args.eval_tolerance,
            reload=reload,
            chunk=args.eval_batch_size * args.world_size,
            least_rows=self._limits.min_rows,
            least_seconds=self._limits.min_seconds,
            seed=data_seed(args),
        )

    def _log(self) -> DecisionLog:
        log = DecisionLog(str(self._args.output_dir), writes=self._args.should_save)
        if not holds_race(self._resume_from):  # what an earlier run has left in this folder is none of this one's
            log.rewind(0 if self._resume_from is None else self._trainer.state.global_step - 1)
        return log

    def _candidate_weights(self) -> weights.CandidateWeights | None:
        trainer = self._trainer
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            return None
        inner = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
        folder = os.path.join(str(trainer.args.output_dir), weights.FOLDER)
        barrier = trainer.accelerator.wait_for_everyone
        return weights.CandidateWeights(inner, folder, writes=trainer.args.should_save, barrier=barrier)
