"""What PlusTrainer asks of a plan at the points of its own that a plan touches."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import has_length

from hf_trainplus import _upstream as upstream
from hf_trainplus.training.checkpoints.saving import amend
from hf_trainplus.training.leaving import note_left, urgent_stop_seen, was_left
from hf_trainplus.training.stages.record import ENTRY, read_record
from hf_trainplus.training.stages.streams import no_steps
from hf_trainplus.training.strict_state import write_state

if TYPE_CHECKING:
    from transformers import TrainingArguments

    from hf_trainplus.trainer import PlusTrainer
    from hf_trainplus.training.stages.run import StagedRun


def refuse_forgotten_plan(checkpoint: str | None) -> None:
    """Refuse to go on without a plan from a checkpoint that has one: its steps and its optimizer are a stage's.

    Raises:
        ValueError: the checkpoint has a plan.
    """
    record = None if checkpoint is None else read_record(checkpoint)
    if record is not None:
        raise ValueError(
            f"{checkpoint} is in stage {record.name!r} of a plan, and no plan was given. Pass the plan again, or begin "
            f"a run without one from its weights: from_pretrained({checkpoint!r})."
        )


def lengths(run: StagedRun, values: Callable[..., Any], args: TrainingArguments, dataloader: Any) -> Any:
    """Return the lengths of a stage that is limited in steps and in epochs: the fewer steps count.

    Args:
        run: the plan's run.
        values: upstream's ``set_initial_training_values``.
        args: the arguments of the stage.
        dataloader: its training loader.
    """
    from hf_trainplus.training.stages.arguments import applied, counted_steps

    if (run.start.finished or not run.stage.trains) and not has_length(dataloader):
        return no_steps(values, args, dataloader)
    found = values(args, dataloader)
    update_steps_an_epoch, max_steps = found[1], found[-1]
    steps = counted_steps(run.stage, update_steps_an_epoch, max_steps)
    if run.start.finished or steps == max_steps:
        return found
    with applied(args, {"max_steps": steps}):
        return values(args, dataloader)


def extra_metrics(trainer: PlusTrainer, run: StagedRun) -> dict[str, float]:
    """Evaluate the further sets that the stage asks for; keys begin with ``eval_`` and the set's name."""
    names = () if run.stage.eval is None else run.stage.eval.extra_datasets
    sets = trainer.extra_eval_datasets
    found: dict[str, float] = {}
    for name, dataset in (sets if "*" in names else {name: sets[name] for name in names}).items():
        found |= trainer.evaluate(dataset, metric_key_prefix=f"eval_{name}")
    return found


def evaluated(trainer: PlusTrainer, run: StagedRun) -> None:
    """Ask the plan after an evaluation; a stage that is over is saved, unless somebody else ends the run here."""
    control = trainer.control
    if trainer.stop_requested or (control.should_training_stop and not run.spent):
        return
    if run.evaluated() and run.stage.trains:
        control.should_save = control.should_training_stop = True


def interrupted_alone(trainer: PlusTrainer, error: Exception) -> None:
    """Leave an evaluation that a stage without training consists of: the boundary before it stays as it is."""
    if was_left(error):
        note_left(trainer)
        trainer.stop_requested = trainer.control.should_training_stop = True
    elif getattr(trainer.args, "on_eval_error", "raise") == "raise":
        raise error
    else:
        upstream.logger.warning(
            f"the evaluation of a stage failed ({type(error).__name__}: {error}); the plan goes on, since "
            "on_eval_error='continue'."
        )


def loop_ends(trainer: PlusTrainer, run: StagedRun, run_dir: str) -> None:
    """Evaluate a stage that does nothing else, and see whether anybody wants the run to end here."""
    load_best = trainer.args.load_best_model_at_end
    if not run.stage.trains and not run.start.finished and not trainer.control.should_training_stop:
        _evaluate_only(trainer, run, load_best=load_best)
    run.leaves = urgent_stop_seen(trainer)
    run.loop_ends()


def _evaluate_only(trainer: PlusTrainer, run: StagedRun, *, load_best: bool) -> None:
    """Evaluate the weights that the run hands over: the best with ``load_best_model_at_end``, else the last ones."""
    folder = _boundary_folder(trainer, run)
    if load_best and trainer.state.best_model_checkpoint is not None:
        upstream.load_best_model(trainer)
    run.spent = True
    upstream.evaluate_step(trainer, None, None)
    if trainer.stop_requested:
        return
    run.decide()  # an evaluation that failed has not asked
    _enter(trainer, run, folder)


def _boundary_folder(trainer: PlusTrainer, run: StagedRun) -> str:
    """Return the checkpoint of this step, written when there is none."""
    given, here = run.start.checkpoint, upstream.checkpoint_dir(trainer)
    if given is not None and os.path.basename(os.path.normpath(given)) == os.path.basename(here):
        return given
    return upstream.save_checkpoint(trainer)


def settle(trainer: PlusTrainer, run: StagedRun, checkpoint: str) -> None:
    """End a stage whose last evaluation was made up for, or was not to be made, in the checkpoint itself."""
    if run.start.crosses or run.start.finished or run.record is None:
        return
    if run.spent and not trainer.stop_requested:
        run.decide()
    if run.record.is_over:
        trainer.control.should_training_stop = True
        trainer.control.should_save = False
        _enter(trainer, run, checkpoint)


def _enter(trainer: PlusTrainer, run: StagedRun, checkpoint: str) -> None:
    """Write into a checkpoint that is there what follows after it, in one step."""
    states: Any = trainer.state.stateful_callbacks
    states[ENTRY] = run.entry()

    def write(folder: str) -> None:
        if trainer.args.should_save:
            write_state(trainer.state, os.path.join(folder, TRAINER_STATE_NAME))

    amend(trainer, checkpoint, write)
    run.saved(checkpoint)


def evaluates_as_before(trainer: PlusTrainer, run: StagedRun) -> bool:
    """Say whether the rows of evaluations, and a race, go on from the checkpoint: not into a stage with others."""
    before = run.start.record
    if not run.start.crosses or before is None:
        return True
    settings = before.plan["stages"][before.stage].get("eval") or {}
    own = {} if run.stage.eval is None else run.stage.eval.settings()
    names = ("mode", "subset_size", "subset_strategy")
    return [settings.get(name) for name in names] == [own.get(name) for name in names]


def racing(trainer: PlusTrainer) -> AbstractContextManager[None]:
    """Settle a race whose stage is over: inside the context the mode is its own."""
    from hf_trainplus.training.stages.arguments import applied

    return applied(trainer.args, {"eval_mode": "race"})
