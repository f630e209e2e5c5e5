"""What a race says: why every row of every checkpoint is evaluated although a race was asked for, and what is odd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hf_trainplus.training import best
from hf_trainplus.training.construction import holds_race
from hf_trainplus.training.racing import patience, plateau

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.training.runner import EvaluationRunner

BATCH_MATES = "a row's loss may depend on the rows beside it"
JACKKNIFE = (
    "eval_mode='race' compares {!r} by leaving out groups of rows, since it ranks all rows together: no comparison is "
    "settled before 30 % of the rows"
)
OTHER_RACE = (
    "{} holds a race that this run cannot go on with: {} Resume with the evaluation set, metric_for_best_model and "
    "seed that it was saved with."
)
FUNCTION_AT_END = (
    "in a race a compute_metrics that is a function of all predictions is called once, for the best checkpoint at the "
    "end; give load_metric(...) to log a metric at every evaluation"
)
GONE = "the race's best checkpoint, step {}, cannot be loaded: its folder {} is gone, and no other copy was kept"
NO_WINNER = (
    "no evaluated checkpoint has a finite {} over all rows, so none is named the best and the weights of the last step "
    "stay; look for the first non-finite loss in the log, and lower learning_rate or train in bf16 or fp32"
)


class OtherRaceError(ValueError):
    """A checkpoint's race is over other rows, another metric or another seed than the run's."""


@dataclass(frozen=True)
class Watched:
    """The metric that decides.

    Args:
        key: its key among logged metrics.
        name: its own name, e.g. ``loss``.
        greater_is_better: direction in which it is raced.
    """

    key: str
    name: str
    greater_is_better: bool

    @classmethod
    def by(cls, trainer: Trainer) -> Watched:
        """Return what a trainer chooses its best checkpoint by; the loss when it names nothing."""
        args = trainer.args
        key = best.metric_key(str(args.metric_for_best_model or "loss"))
        greater = bool(args.greater_is_better) if args.metric_for_best_model else False
        return cls(key, best.own_name(key, trainer.eval_dataset), greater)


def why_not(
    trainer: Trainer, runner: EvaluationRunner, dataset: object, watched: Watched, resume_from: str | None
) -> str | None:
    """Return why a run's decisions need every row; None when a race can take them.

    Args:
        trainer: its callbacks, schedule and state count.
        runner: says what rows depend on.
        dataset: the evaluation set.
        watched: the metric that decides.
        resume_from: checkpoint that the run goes on from, or None.
    """
    if not hasattr(dataset, "__len__"):
        return "a stream's rows have no stable positions"
    if trainer.state.is_hyper_param_search:
        return "a hyperparameter search compares every value of the metric"
    if resume_from is not None and trainer.state.best_metric is not None and not holds_race(resume_from):
        return "the best of the checkpoint that it resumes was found without a race"
    if not runner.rows_are_independent():
        return BATCH_MATES
    if runner.generation.races(watched.name) and (reason := runner.generation.why_not_raced()) is not None:
        return reason
    return patience.why_not(trainer, watched.key) or plateau.why_not(
        trainer, watched.name, greater_is_better=watched.greater_is_better
    )
