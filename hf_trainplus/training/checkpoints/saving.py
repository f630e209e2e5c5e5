"""Saves of a trainer: all ranks write into one temporary folder, and one of them puts it in its place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from transformers.trainer import TRAINER_STATE_NAME

from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.training.checkpoints.files import link_or_copy
from hf_trainplus.training.checkpoints.record import CheckpointRecord, LoopState, record_of, remove_orphans
from hf_trainplus.training.checkpoints.rotation import rotate
from hf_trainplus.training.checkpoints.staging import Staging
from hf_trainplus.training.checkpoints.writer import Writer
from hf_trainplus.training.strict_state import make_file_strict

if TYPE_CHECKING:
    from transformers import Trainer


@contextmanager
def staged(trainer: Trainer, final: str, loop: Callable[[], LoopState | None]) -> Iterator[str]:
    """Give the folder to write a checkpoint in, and put the checkpoint in its place at the end; a collective.

    When writing fails, what was written is removed and the error goes on; the earlier checkpoints are untouched.

    Args:
        trainer: its arguments say which processes write.
        final: folder that the checkpoint will have.
        loop: returns the loop's state once everything is written; called on every rank.
    """
    ranks, name = Ranks.current(), os.path.basename(final)
    staging = Staging.beside(os.path.dirname(final), ranks.from_first(Writer.current().folder_name))
    if _cleans(trainer) and staging.exists:
        staging.clear()
    ranks.gather(None)
    try:
        yield staging.folder
        if os.path.isfile(os.path.join(staging.path(name), TRAINER_STATE_NAME)) and trainer.args.should_save:
            make_file_strict(os.path.join(staging.path(name), TRAINER_STATE_NAME))
        _place(trainer, staging, name, loop())
    except BaseException:
        if trainer.args.should_save:
            staging.clear()
        raise


def _place(trainer: Trainer, staging: Staging, name: str, loop: LoopState | None) -> None:
    ranks = Ranks.current()
    ranks.gather(None)  # every rank's files are written
    if trainer.args.process_index == 0:
        _seal_and_finish(staging, name, loop)
    ranks.gather(None)
    # another machine with a disk of its own still has its part
    if trainer.args.process_index != 0 and _cleans(trainer) and os.path.isdir(staging.path(name)):
        _seal_and_finish(staging, name, loop)
    ranks.gather(None)


def _seal_and_finish(staging: Staging, name: str, loop: LoopState | None) -> None:
    if os.path.isdir(staging.path(name)):  # a subclass that chooses its own folder has written there
        staging.seal(name, CheckpointRecord.describe(staging.path(name), loop))
        staging.finish()
    else:
        staging.clear()


def _cleans(trainer: Trainer) -> bool:
    """Say whether this process is the one of its machine."""
    return bool(trainer.args.local_process_index == 0)


def tidy(trainer: Trainer, run_dir: str) -> None:
    """Delete the checkpoints that are too many, now that the new one is in place, and records of deleted ones."""
    if trainer.args.should_save:
        rotate(run_dir, trainer.args.save_total_limit, trainer.state.best_model_checkpoint)
    if _cleans(trainer):
        remove_orphans(run_dir)


def amend(trainer: Trainer, checkpoint_dir: str, write: Callable[[str], None]) -> None:
    """Change some files of a checkpoint in one step: a kill leaves all of the old ones or all of the new ones.

    Large files are linked, not copied. A folder that cannot be written costs a warning and stays as it is.

    Args:
        trainer: its arguments say which process writes.
        checkpoint_dir: the checkpoint.
        write: writes into the folder that it is given; called on every rank, since it may wait for the others.
    """
    folder = os.path.abspath(checkpoint_dir)
    staging = Staging.beside(os.path.dirname(folder), Ranks.current().from_first(Writer.current().folder_name))
    new, writes = staging.path(os.path.basename(folder)), trainer.args.should_save
    if writes:
        staging.clear()
        shutil.copytree(folder, new, copy_function=_linked_unless_rewritten)
    Ranks.current().gather(None)
    write(new)
    if writes:
        known = record_of(folder)
        staging.seal(os.path.basename(new), CheckpointRecord.describe(new, None if known is None else known.loop))
        staging.finish()
    Ranks.current().gather(None)


def _linked_unless_rewritten(source: str, target: str) -> str:
    name = os.path.basename(source)
    is_written_anew = name.startswith("trainplus_") or name == TRAINER_STATE_NAME
    return str(shutil.copy2(source, target)) if is_written_anew else link_or_copy(source, target)
