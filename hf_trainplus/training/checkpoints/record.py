"""What is known of a checkpoint beside it: the files that it holds and what upstream would lose on a resume.

It lies beside the checkpoints, not in them: what is in a checkpoint stays equal to stock, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transformers.trainer import TRAINER_STATE_NAME

from hf_trainplus.training.checkpoints.files import replace_text, sizes
from hf_trainplus.training.strict_state import from_strict, to_strict

RECORDS = "trainplus_checkpoints"


@dataclass(frozen=True)
class LoopState:
    """Where the training loop stands at a save, as far as upstream's checkpoint does not hold it.

    Args:
        losses: sum of the training losses since the last log, one a rank.
        total_loss: sum of the losses that were logged.
        last_logged_step: step of the last training log.
        first_step: step from which on ``total_loss`` counts.
        epoch_ended: False while what follows the end of an epoch (log, evaluation, save) is still to come.
        grad_norm, learning_rate: of the last step, as the log at the end of an epoch shows them.
        token_limits: limits of evaluation batches that were measured: with others, sums are rounded otherwise.

    Example:
        >>> LoopState([0.5, 1.5], 0.0, 0, 0, False).loss_of(1, 2), LoopState([0.5, 1.5], 0.0, 0, 0, False).loss_of(0, 1)
        (1.5, 1.0)
    """

    losses: Sequence[float]
    total_loss: float
    last_logged_step: int
    first_step: int
    epoch_ended: bool
    grad_norm: float | None = None
    learning_rate: float | None = None
    token_limits: Mapping[str, Any] = field(default_factory=dict)

    def loss_of(self, rank: int, size: int) -> float:
        """Return the running loss of a rank; the mean, which is what is logged, when their number has changed."""
        if size == len(self.losses):
            return self.losses[rank]
        return math.fsum(self.losses) / len(self.losses)


@dataclass(frozen=True)
class CheckpointRecord:
    """The files of one checkpoint, and the loop's state at its save.

    Args:
        checkpoint: name of the checkpoint's folder.
        files: size in bytes by path.
        state_digest: SHA-256 of its ``trainer_state.json``; None when it has none.
        loop: the loop's state; None outside training.
    """

    checkpoint: str
    files: Mapping[str, int]
    state_digest: str | None
    loop: LoopState | None = None

    @classmethod
    def describe(cls, folder: str | Path, loop: LoopState | None) -> CheckpointRecord:
        """Describe a checkpoint that has been written."""
        return cls(Path(folder).name, sizes(folder), _state_digest(folder), loop)

    def write(self, path: str | Path) -> None:
        """Write it as strict JSON."""
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        replace_text(path, json.dumps(to_strict(asdict(self)), indent=1, allow_nan=False) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> CheckpointRecord | None:
        """Read it; None when there is none, or one that is not whole."""
        try:
            stored: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
            loop = stored.pop("loop")
            return cls(**stored, loop=None if loop is None else LoopState(**from_strict(loop)))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def record_path(checkpoint_dir: str | Path) -> Path:
    """Return where the record of a checkpoint lies.

    Example:
        >>> record_path("out/checkpoint-3").as_posix()
        'out/trainplus_checkpoints/checkpoint-3.json'
    """
    folder = Path(os.path.abspath(checkpoint_dir)) if Path(checkpoint_dir).name in ("", ".") else Path(checkpoint_dir)
    return folder.parent / RECORDS / f"{folder.name}.json"


def record_of(checkpoint_dir: str | Path) -> CheckpointRecord | None:
    """Return the record that belongs to a checkpoint; None when another program has written it since."""
    record = CheckpointRecord.read(record_path(checkpoint_dir))
    return record if record is not None and record.state_digest == _state_digest(checkpoint_dir) else None


def remove_orphans(run_dir: str | Path) -> None:
    """Delete the records of checkpoints that are gone."""
    for path in Path(run_dir, RECORDS).glob("*.json"):
        if not Path(run_dir, path.stem).is_dir():
            path.unlink(missing_ok=True)


def _state_digest(folder: str | Path) -> str | None:
    path = Path(folder, TRAINER_STATE_NAME)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
