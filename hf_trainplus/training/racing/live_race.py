"""The race of a trainer's watched metric: made at the first evaluation, carried in checkpoints, settled at the end."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from transformers.trainer_utils import EvalLoopOutput

from hf_trainplus import _upstream as upstream
from hf_trainplus.decisions.race import read_state, write_state
from hf_trainplus.evaluation.loop import LoopOutput
from hf_trainplus.results import ExampleResults, Int64Array
from hf_trainplus.training.construction import RACE_FILE, holds_race
from hf_trainplus.training.gains import log_gain, raced_gain
from hf_trainplus.training.racing import patience, plateau, weights
from hf_trainplus.training.racing.generated import generation_keys, scored
from hf_trainplus.training.racing.readings import put_level
from hf_trainplus.training.racing.refusals import BATCH_MATES, GONE, NO_WINNER, OTHER_RACE, OtherRaceError, Watched
from hf_trainplus.training.racing.session import Observed, RaceLimits, RaceSession
from hf_trainplus.training.racing.start import RaceStart
from hf_trainplus.training.request import Request
from hf_trainplus.training.result import result_of
from hf_trainplus.training.runner import EvaluationRunner

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.training_args import PlusTrainingArguments

BEST_FOLDER = "best-checkpoint"


class LiveRace:
    """Races the watched metric of a training run, or says once why every row is evaluated.

    Args:
        trainer: the trainer.
        runner: runs rows with the weights in the model.
        limits: when a race is not worth it.
    """

    def __init__(self, trainer: Trainer, runner: EvaluationRunner, limits: RaceLimits) -> None:
        self._trainer = trainer
        self._runner = runner
        self.limits = limits
        self.session: RaceSession | None = None
        self._weights: weights.CandidateWeights | None = None
        self._refused = False
        self._request: tuple[Request, str] | None = None
        self._resume_from: str | None = None
        self._last: Observed | None = None
        self._patience = patience.TakenPatience()
        self.stopped = False
        """Whether patience has run out at the last evaluation."""

    @property
    def _args(self) -> PlusTrainingArguments:
        return cast("PlusTrainingArguments", self._trainer.args)

    @property
    def _watched(self) -> Watched:
        return Watched.by(self._trainer)

    @property
    def generates(self) -> bool:
        """Whether the watched metric is one of generated ids, which the race generates row by row."""
        return self._runner.generation.races(self._watched.name)

    # ---- a run begins, goes on, ends ----
    def begin(self, resume_from: str | None) -> None:
        """Forget an earlier run; the race of the checkpoint is taken up at the first evaluation."""
        self.session, self._refused, self._request, self._last = None, False, None, None
        self.stopped = False
        self._resume_from = resume_from
        patience.give_back(self._trainer, self._patience)
        self._patience = patience.TakenPatience()

    def applies(self, request: Request, prefix: str) -> bool:
        """Say whether this evaluation is raced; the session is made the first time."""
        if self.session is None and not self._refused:
            made = self._start().make(request)
            if isinstance(made, str):
                self._refused = True
                self._runner.say_once(f"eval_mode='race' evaluates every row here: {made}")
            else:
                self.session, self._weights, self._patience = made.session, made.weights, made.patience
                self._request = request, prefix
                self._take_up()
        return self.session is not None

    def _start(self) -> RaceStart:
        return RaceStart(self._trainer, self._runner, self.limits, self._evaluate_rows, self._resume_from)

    def observe(self, request: Request, prefix: str) -> EvalLoopOutput:
        """Enter the live weights and return what is logged of them."""
        session = cast("RaceSession", self.session)
        levels = plateau.levels(self._trainer)
        taken = self._patience
        observed = session.observe(self._trainer.state.global_step, taken.place(), levels, taken.sides())
        self._last = observed
        self.stopped = taken.stops(observed.verdict)
        if self.stopped:
            self._trainer.control.should_training_stop = True
        result = self._logged(observed, request, prefix)
        metrics = cast("dict[str, Any]", result.metrics)
        log_gain(metrics, self._watched.key, raced_gain(observed.verdict, self._args.eval_confidence))
        if levels:
            metrics[self._watched.key] = plateau.value(observed.verdict)
        return result

    def note_settled_best(self, run_dir: str) -> bool:
        """Without reloading, the best is known at once and its checkpoint is asked for now; say whether it was."""
        step = self._trainer.state.global_step
        if self._weights is not None or self._last is None or self._last.verdict.best != step:
            return False
        self._set_best(step, self._last.verdict.value, os.path.join(run_dir, f"checkpoint-{step}"))
        self._trainer.control.should_save = True
        return True

    def finish(self, run_dir: str) -> dict[str, Any] | None:
        """Settle what is open; write and name the best, and return its exact metrics; None without a winner."""
        if self.session is None or self._request is None:
            return None
        step = self._trainer.state.global_step
        observed = self.session.finish(step if self.session.race.state.last == step else None)
        if observed is None or observed.verdict.best is None or not np.isfinite(observed.verdict.value or 0.0):
            if self.session.race.state.observations:
                self._runner.say_once(NO_WINNER.format(self._watched.key))
            return None
        winner = observed.verdict.best
        self._set_best(winner, observed.verdict.value, self._best_folder(run_dir, winner))
        request, prefix = self._request
        metrics = dict(self._exact_metrics(observed, request, prefix))
        metrics[f"{prefix}_best_step"] = winner
        return metrics

    def _exact_metrics(self, observed: Observed, request: Request, prefix: str) -> dict[str, Any]:
        """Return the winner's metrics; a metric function needs one more pass over all rows with its weights."""
        needs_rows = observed.subset is not None or len(observed.results) < len(request.loader.dataset)
        collected = self._runner.metrics_of(self._trainer.model).collected and not request.loss_only
        winner = observed.verdict.best
        if (needs_rows or collected) and self._weights is not None and winner in self._weights.steps:
            with self._weights.loaded(winner):
                metrics = cast("dict[str, Any]", self._runner.evaluate(request, prefix).metrics)
            return metrics | _race_keys(observed, prefix)
        return cast("dict[str, Any]", self._logged(observed, request, prefix).metrics)

    def _set_best(self, step: int, value: float | None, folder: str | None) -> None:
        state = self._trainer.state
        if value is not None and self._watched.name == "perplexity":
            value = math.exp(value)  # the loss is raced, of which it is a function
        state.best_metric, state.best_global_step, state.best_model_checkpoint = value, step, folder

    def _best_folder(self, run_dir: str, winner: int) -> str | None:
        """Return the winner's checkpoint on the save grid, or write its weights beside the checkpoints.

        None where its weights are nowhere: without reloading they are in the checkpoint of its own step only.
        """
        trainer = self._trainer
        on_grid = os.path.join(run_dir, f"checkpoint-{winner}")
        if trainer.accelerator.gather_for_metrics([os.path.isdir(on_grid)], use_gather_object=True)[0]:
            return on_grid
        folder = os.path.join(run_dir, f"{BEST_FOLDER}-{winner}")
        if self._weights is not None and winner in self._weights.steps:
            with self._weights.loaded(winner):
                upstream.save_weights(trainer, folder)
        elif self._weights is not None and winner == trainer.state.global_step:
            upstream.save_weights(trainer, folder)
        else:
            self._runner.say_once(GONE.format(winner, on_grid))
            return None
        trainer.accelerator.wait_for_everyone()
        return folder

    # ---- checkpoints ----
    def save(self, checkpoint_dir: str) -> None:
        """Write the race into a checkpoint that begins, and the candidates that it names beside the checkpoints."""
        if self.session is None:
            return
        if self._weights is not None:
            self._weights.persist()
        if self._args.should_save:
            steps = [] if self._weights is None else self._weights.steps
            weights.write_references(checkpoint_dir, steps)
            write_state(os.path.join(checkpoint_dir, RACE_FILE), self._state(steps))

    def tidy(self, run_dir: str) -> None:
        """Delete candidates that no checkpoint names any more."""
        if self._weights is not None and os.path.isdir(run_dir):
            self._weights.remove_unreferenced(weights.referenced_candidates(run_dir))

    def end(self, run_dir: str) -> None:
        """Let go of every candidate when the run is over; those that a checkpoint names stay on disk."""
        if self._weights is not None:
            self._weights.forget()
        self.tidy(run_dir)

    def _state(self, steps: list[int]) -> dict[str, Any]:
        return {
            "race": cast("RaceSession", self.session).race.state_dict(),
            "candidates": np.asarray(steps),
            "stopped_by": self._patience.numbers if self.stopped else None,
        }

    def _take_up(self) -> None:
        """Go on with the race of the checkpoint that the run was resumed from."""
        session = cast("RaceSession", self.session)
        if self._resume_from is None or not holds_race(self._resume_from):
            return
        state = read_state(os.path.join(self._resume_from, RACE_FILE))
        try:
            session.race.load_state_dict(state["race"])
        except ValueError as error:
            self.session = None
            raise OtherRaceError(OTHER_RACE.format(self._resume_from, error)) from error
        stopped_by = state.get("stopped_by")
        self.stopped = stopped_by is not None and stopped_by == self._patience.numbers  # with more it goes on
        session.log.rewind(self._resumed_step())
        if self._weights is not None:
            self._weights.restore([int(step) for step in state["candidates"]])

    def _resumed_step(self) -> int:
        return int(str(self._resume_from).rstrip(os.sep).rsplit("-", 1)[1])

    # ---- evaluating and logging ----
    def _evaluate_rows(self, request: Request, rows: Int64Array) -> ExampleResults:
        request = replace(request, ids=np.sort(rows))
        results = self._runner.loop(request).results
        if self.generates:
            results = scored(results, self._runner.generation.scores_of(request))
        if self.session is not None and not self._runner.rows_are_independent():
            self.session.race.race_no_more(BATCH_MATES)
        return results

    def _logged(self, observed: Observed, request: Request, prefix: str) -> EvalLoopOutput:
        output = LoopOutput(observed.results, None, None, None, True, True, 0, observed.seconds)
        self._runner.last = output
        # no function of all rows' predictions is called on the rows of a race
        request = replace(request, subset=observed.subset, loss_only=True)
        result = result_of(self._runner, output, request, prefix)
        metrics = cast("dict[str, Any]", result.metrics)
        put_level(metrics, self._watched.key, observed, self._args.eval_confidence)
        metrics |= _race_keys(observed, prefix)
        if self.generates:
            metrics |= generation_keys(observed.results, prefix)
        return result


def _race_keys(observed: Observed, prefix: str) -> dict[str, float]:
    return {
        f"{prefix}_race_candidates": len(observed.verdict.candidates),
        f"{prefix}_race_cost": observed.cost,
    }
