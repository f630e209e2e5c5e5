"""Deleting old checkpoints: each disappears at once, so that a kill leaves no half of one."""

from __future__ import annotations

import os
from pathlib import Path

from transformers.trainer_utils import sort_checkpoints

from hf_trainplus.training.checkpoints.staging import CHECKPOINT, Staging


def surplus(run_dir: str, limit: int | None, best: str | None) -> list[str]:
    """Return the checkpoints that ``save_total_limit`` no longer allows, oldest first, as upstream chooses them.

    The newest one and the best one always stay; the newest is that of the last write, as far as times tell it.

    Args:
        run_dir: folder of the checkpoints.
        limit: how many are kept; None or below 1 for all.
        best: the best checkpoint, None when there is none.
    """
    if limit is None or limit <= 0:
        return []
    found = sort_checkpoints(output_dir=run_dir, use_mtime=True)
    kept = {found[-1], str(Path(best)) if best is not None else found[-1]} if found else set()
    many = len(found) - max(limit, len(kept))
    return [folder for folder in found if folder not in kept][: max(many, 0)]


def rotate(run_dir: str, limit: int | None, best: str | None) -> None:
    """Delete the surplus checkpoints; of each, first the name and then the files.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> for step in (2, 4, 10):
        ...     os.makedirs(os.path.join(folder, f"checkpoint-{step}"))
        >>> rotate(folder, 2, None)
        >>> sorted(os.listdir(folder))
        ['checkpoint-10', 'checkpoint-4']
    """
    trash = Staging.beside(run_dir)
    for folder in surplus(run_dir, limit, best):
        if CHECKPOINT.match(os.path.basename(folder)):
            os.makedirs(trash.folder, exist_ok=True)
            os.rename(folder, trash.path(f"deleted-{os.path.basename(folder)}"))
    trash.clear()
