"""An evaluation that failed or was left: its checkpoint is safe and marked, and a resumed run evaluates it first."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState

from hf_trainplus import _upstream as upstream
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.training import pending
from hf_trainplus.training.checkpoints.saving import amend
from hf_trainplus.training.leaving import note_left, urgent_stop_seen
from hf_trainplus.training.strict_state import write_state
from hf_trainplus.training.urgent import mark_urgent

if TYPE_CHECKING:
    from hf_trainplus.trainer import PlusTrainer


def leave(trainer: PlusTrainer, error: Exception) -> None:
    """Save and end the training after an evaluation that was left."""
    trainer.stop_requested = True
    note_left(trainer)
    _save_marked(trainer, error)
    trainer.control.should_save = trainer.control.should_evaluate = False
    trainer.control.should_training_stop = True
    mark_urgent(trainer.control, keeps_due=False)


def fail(trainer: PlusTrainer, error: Exception) -> None:
    """Save and record a failed evaluation; raise, or go on when ``on_eval_error`` says so."""
    step = trainer.state.global_step
    folder = _save_marked(trainer, error)
    if trainer.args.should_save:
        pending.record_failure(str(trainer.args.output_dir), step, error)
    trainer.control = trainer.callback_handler.on_save(trainer.args, trainer.state, trainer.control)
    if getattr(trainer.args, "on_eval_error", "raise") == "raise":
        raise error
    upstream.logger.warning(
        f"the evaluation of step {step} failed ({type(error).__name__}: {error}); checkpoint {folder} is safe and "
        f"training continues, since on_eval_error='continue'. See {pending.FAILURES}."
    )
    for callback in trainer.callback_handler.callbacks:
        forgive = getattr(callback, "evaluation_failed", None)
        if callable(forgive):
            forgive()
    # upstream clears these flags when an evaluation and a save have succeeded
    trainer.control.should_save = trainer.control.should_evaluate = False


def _save_marked(trainer: PlusTrainer, error: Exception) -> str:
    """Save with the mark inside from the start: no kill leaves the checkpoint without it."""
    trainer.pending_error = error
    try:
        return upstream.save_checkpoint(trainer)
    finally:
        trainer.pending_error = None


def mark(trainer: PlusTrainer, checkpoint_dir: str) -> None:
    """Put the mark into a checkpoint that begins, when its evaluation is still to be done."""
    if trainer.pending_error is not None and trainer.args.should_save:
        os.makedirs(checkpoint_dir, exist_ok=True)
        pending.mark_pending(checkpoint_dir, trainer.state.global_step, trainer.pending_error)


def make_up(trainer: PlusTrainer, folder: str, trial: Any, ignore_keys: Any) -> None:
    """Make the evaluation that a checkpoint owes, if it does; a run that has to leave at once makes none."""
    if not Ranks.current().from_first(pending.is_pending(folder)):
        return
    if urgent_stop_seen(trainer):
        trainer.stop_requested = trainer.control.should_training_stop = True
    else:
        catch_up(trainer, folder, trial, ignore_keys)


def catch_up(trainer: PlusTrainer, folder: str, trial: Any, ignore_keys: Any) -> None:
    """Make the evaluation that a checkpoint owes, and enter it into the checkpoint."""
    metrics = upstream.evaluate_step(trainer, trial, ignore_keys)
    if trainer.state.global_step:  # that of eval_on_start is never the best
        trainer.plus_is_new_best(metrics, os.path.dirname(folder))
    trainer.control.should_save = False
    # a plateau's step is in the optimizer's state too: that checkpoint stays, and each resume evaluates it anew
    if metrics and trainer.args.lr_scheduler_type not in ("reduce_lr_on_plateau", "greedy"):
        amend(trainer, folder, lambda new: _enter(trainer, new))


def _enter(trainer: PlusTrainer, folder: str) -> None:
    trainer.plus_checkpoint_begins(folder)
    if not trainer.args.should_save:
        return
    pending.clear_pending(folder)
    _refresh_callbacks(trainer)
    write_state(trainer.state, os.path.join(folder, TRAINER_STATE_NAME))


def _refresh_callbacks(trainer: PlusTrainer) -> None:
    """Bring the state's part of each callback up to date, as a save does."""
    owners = [one for one in [*trainer.callback_handler.callbacks, trainer.control] if isinstance(one, ExportableState)]
    alone = Counter(type(one).__name__ for one in owners)
    entries: Any = trainer.state.stateful_callbacks
    for owner in owners:
        name = type(owner).__name__
        if alone[name] == 1 and not isinstance(entries.get(name), list):
            entries[name] = owner.state()
