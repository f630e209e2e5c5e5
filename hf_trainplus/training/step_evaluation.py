"""The scheduled evaluation of a step: what fails in it never costs the training, and what succeeds still decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hf_trainplus import _upstream as upstream
from hf_trainplus.training import best, construction, interrupted, pending
from hf_trainplus.training.leaving import refuse_before, was_left
from hf_trainplus.training.stages import trainer as plans

if TYPE_CHECKING:
    from hf_trainplus.trainer import PlusTrainer
    from hf_trainplus.training.stages.run import StagedRun

Metrics = dict[str, Any]


class FailedSets:
    """Errors of single evaluation sets inside one scheduled evaluation under ``on_eval_error="continue"``.

    One of several sets that fails leaves the others their values. An evaluation of a single set, one that a person
    asks for, and one that is left on request fail as a whole.
    """

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}

    def evaluate(self, prefix: str, evaluate: Callable[[], Metrics], *, guarded: bool) -> Metrics:
        """Evaluate one set; no metrics when it fails and others may still decide.

        Args:
            prefix: of the set's keys; ``eval`` for an evaluation as a whole.
            evaluate: evaluates it.
            guarded: whether the run goes on after an error: it is scheduled and ``on_eval_error`` says so.
        """
        if prefix == "eval" or not guarded:
            return evaluate()
        try:
            return _on_all_ranks(evaluate)
        except Exception as error:
            if was_left(error):
                raise
            self.errors[prefix] = error
            return {}

    def cause(self, trainer: PlusTrainer, error: Exception) -> Exception:
        """Return why nothing decides: the watched set's own error before one that only follows from it."""
        watched = best.metric_key(str(trainer.args.metric_for_best_model or "loss"))
        first = next((found for prefix, found in self.errors.items() if watched.startswith(f"{prefix}_")), None)
        return first or next(iter(self.errors.values()), error)

    def report(self, trainer: PlusTrainer) -> None:
        """Write the failures into the run's file, say them, and forget them."""
        errors, self.errors = self.errors, {}
        for prefix, error in errors.items():
            name, step = prefix.removeprefix("eval_"), trainer.state.global_step
            if trainer.args.should_save:
                pending.record_failure(str(trainer.args.output_dir), step, error, name)
            if trainer.is_world_process_zero():
                upstream.logger.warning(
                    f"the evaluation of {name!r} at step {step} failed ({type(error).__name__}: {error}); the other "
                    f"sets count, since on_eval_error='continue'. See {pending.FAILURES}."
                )


def evaluate_step(
    trainer: PlusTrainer,
    run: Callable[[], Metrics],
    failed: FailedSets,
    staged: StagedRun | None,
    *,
    is_complete: Callable[[], bool],
) -> Metrics:
    """Evaluate at a step of the run and return its metrics, none when the evaluation failed or was left.

    Args:
        trainer: the trainer.
        run: upstream's own evaluation of a step.
        failed: takes the errors of single sets.
        staged: the run of a plan, or None.
        is_complete: asked afterwards whether the metric that decides was due in this evaluation.
    """
    failed.errors.clear()
    try:
        refuse_before(trainer)
        with construction.flag(trainer, "_is_scheduled"):
            metrics = _on_all_ranks(run)
            if staged is not None:
                metrics = metrics | plans.extra_metrics(trainer, staged)
        if failed.errors and not metrics:
            raise failed.cause(trainer, next(iter(failed.errors.values())))
        if is_complete():
            best.require_metric(trainer.args, metrics, trainer.label_names)
    except Exception as error:
        act = interrupted.leave if was_left(error) else interrupted.fail
        if staged is not None and not staged.stage.trains:
            act = plans.interrupted_alone
        act(trainer, error if was_left(error) else failed.cause(trainer, error))
        metrics = {}
    failed.report(trainer)
    if staged is not None:
        plans.evaluated(trainer, staged)
    return metrics


def _on_all_ranks(evaluate: Callable[[], Metrics]) -> Metrics:
    """Evaluate; a rank whose own callback or tracker fails leaves no other rank to go on without it."""
    from hf_trainplus.evaluation.rank_errors import agreed  # loaded by the evaluation; making a trainer need not

    return agreed(evaluate, "evaluation")
