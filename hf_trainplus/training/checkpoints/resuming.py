"""What ``resume_from_checkpoint`` means: never a torn checkpoint, the same one on every rank."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hf_trainplus import _upstream as upstream
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.training.checkpoints.search import Found, newest_first, newest_whole
from hf_trainplus.training.checkpoints.staging import recover
from hf_trainplus.training.checkpoints.whole import why_torn

if TYPE_CHECKING:
    from transformers import Trainer


def prepare_folder(trainer: Trainer, run_dir: str) -> None:
    """Finish or remove what a killed process left in the run's folder, before anything is read there."""
    if trainer.args.should_save:
        recover(run_dir)
    Ranks.current().gather(None)  # nobody looks before it is done


def choose_checkpoint(trainer: Trainer, given: str | bool | None, run_dir: str) -> str | None:
    """Return the checkpoint to resume from, the same on all ranks.

    Args:
        trainer: asked which of its processes read a file system of their own.
        given: True for the newest whole one in ``run_dir``, a folder, or None or False for none.
        run_dir: folder of the checkpoints.

    Raises:
        ValueError: no checkpoint is whole, or the one that was given is torn; named with what it lacks.
    """
    if given is None or given is False:
        return None
    if given is True:
        return _newest(trainer, run_dir)
    why = _why_torn_anywhere(trainer, given) if os.path.isdir(given) else None
    if why is not None:
        raise ValueError(f"resume_from_checkpoint={given!r} is torn: {why}. {_way_out(trainer, given)}")
    return given


def _newest(trainer: Trainer, run_dir: str) -> str:
    found = _newest_whole_everywhere(trainer, run_dir)
    if found.folder is None:
        why = found.describe()
        raise ValueError(
            f"No valid checkpoint found in output directory ({run_dir}){f'; torn are {why}' if why else ''}. "
            "Start anew with resume_from_checkpoint=None."
        )
    if found.skipped and Ranks.current().index == 0:
        upstream.logger.warning(f"skipped as torn: {found.describe()}. The run is resumed from {found.folder}.")
    return found.folder


def _newest_whole_everywhere(trainer: Trainer, run_dir: str) -> Found:
    names = Ranks.current().from_first(newest_first(run_dir))  # every rank must ask about the same ones
    return newest_whole(run_dir, lambda folder: _why_torn_anywhere(trainer, folder), names)


def _why_torn_anywhere(trainer: Trainer, folder: str) -> str | None:
    """Ask one process a machine, since each may read its own disk; what any of them finds counts for all."""
    own = why_torn(folder) if trainer.args.local_process_index == 0 else None
    return next((why for why in Ranks.current().gather(own) if why is not None), None)


def _way_out(trainer: Trainer, given: str) -> str:
    run_dir = os.path.dirname(os.path.abspath(given))
    whole = _newest_whole_everywhere(trainer, run_dir).folder
    if whole is None:
        return "No checkpoint beside it is whole: start anew with resume_from_checkpoint=None."
    return f"The newest whole one: resume_from_checkpoint={whole!r}; True finds it by itself in the output folder."
