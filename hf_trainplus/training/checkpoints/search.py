"""Which checkpoint a run is resumed from."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hf_trainplus.training.checkpoints.staging import CHECKPOINT
from hf_trainplus.training.checkpoints.whole import why_torn


@dataclass(frozen=True)
class Found:
    """The newest whole checkpoint, and the newer ones that are torn.

    Args:
        folder: the checkpoint, None when there is none.
        skipped: names and what they lack, newest first.
    """

    folder: str | None
    skipped: tuple[tuple[str, str], ...] = ()

    def describe(self) -> str:
        """Write what was skipped, for a person; empty when nothing was."""
        return "; ".join(f"{name}: {why}" for name, why in self.skipped)


def newest_whole(
    run_dir: str, why: Callable[[str], str | None] = why_torn, names: Sequence[str] | None = None
) -> Found:
    """Find the checkpoint of the highest step that is whole.

    Args:
        run_dir: folder of the checkpoints.
        why: says what a checkpoint lacks, None for a whole one.
        names: the checkpoints to ask about, newest first; None for all that ``run_dir`` holds.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> os.makedirs(os.path.join(folder, "checkpoint-8"))
        >>> newest_whole(folder).describe()
        'checkpoint-8: trainer_state.json is missing'
    """
    skipped: list[tuple[str, str]] = []
    for name in newest_first(run_dir) if names is None else names:
        reason = why(os.path.join(run_dir, name))
        if reason is None:
            return Found(os.path.join(run_dir, name), tuple(skipped))
        skipped.append((name, reason))
    return Found(None, tuple(skipped))


def newest_first(run_dir: str) -> list[str]:
    """Return the names of all checkpoints, torn or not, the highest step first."""
    names = os.listdir(run_dir) if os.path.isdir(run_dir) else []
    steps = {name: int(found[1]) for name in names if (found := CHECKPOINT.match(name))}
    return sorted((name for name in steps if os.path.isdir(os.path.join(run_dir, name))), key=lambda name: -steps[name])
