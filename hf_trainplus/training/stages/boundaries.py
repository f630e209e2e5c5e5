"""Boundaries that a plan may fall back to, kept where no rotation of checkpoints reaches them."""

from __future__ import annotations

import os
import shutil

from hf_trainplus.budget.stages import StagePlan
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.training.checkpoints.files import link_or_copy

FOLDER = "trainplus_boundaries"


def boundary_dir(output_dir: str, stage: str) -> str:
    """Return the folder with the weights and the optimizer of a stage's last boundary."""
    return os.path.join(output_dir, FOLDER, stage)


def may_fall_back_to(plan: StagePlan, stage: str) -> bool:
    """Say whether a later stage falls back to this one.

    Example:
        >>> plan = StagePlan([{"name": "a", "budget": "max_steps=1"}, {"name": "b", "budget": "max_steps=1",
        ...     "fall_back_when": {"metric": "loss", "at_least": 9}, "fall_back_to": "a"}])
        >>> may_fall_back_to(plan, "a"), may_fall_back_to(plan, "b")
        (True, False)
    """
    return any(one.fall_back_to == stage for one in plan)


def keep_boundary(checkpoint: str, output_dir: str, stage: str, *, writes: bool) -> None:
    """Keep a stage's boundary, as links to the checkpoint's files where the file system has them.

    A kill leaves the boundary before, or this one; never a part.

    Args:
        checkpoint: folder of the boundary's checkpoint.
        output_dir: folder of the run.
        stage: name of the stage that ended there.
        writes: whether this process writes.
    """
    folder = boundary_dir(output_dir, stage)
    if writes:
        temporary, old = f"{folder}.tmp", f"{folder}.old"
        for leftover in (temporary, old):
            shutil.rmtree(leftover, ignore_errors=True)
        shutil.copytree(checkpoint, temporary, copy_function=link_or_copy)
        if os.path.isdir(folder):
            os.rename(folder, old)
        os.rename(temporary, folder)
        shutil.rmtree(old, ignore_errors=True)
    Ranks.current().gather(None)  # no rank falls back to it before it is there
