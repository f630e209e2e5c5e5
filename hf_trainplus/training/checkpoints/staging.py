"""A checkpoint is written under a temporary name and takes its place when it is whole."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from hf_trainplus.training.checkpoints.files import sync_path, sync_tree
from hf_trainplus.training.checkpoints.record import RECORDS, CheckpointRecord
from hf_trainplus.training.checkpoints.writer import Writer

RECORD = "record.json"
REPLACED = "replaced"
CHECKPOINT = re.compile(rf"^{PREFIX_CHECKPOINT_DIR}-(\d+)$")
_WRITTEN_BY_TRAINERS = re.compile(
    r"\.(safetensors|bin|pt|pth|distcp)$|^(global_step|pytorch_model_fsdp_|optimizer_)\d+$|^latest$"
)


@dataclass(frozen=True)
class Staging:
    """The temporary folder of one process in a run's folder.

    The order of ``finish`` is such that after a kill at any moment either the earlier checkpoints are untouched, or
    ``recover`` has all that it needs to put the new one in its place. It does not agree with other ranks.

    Args:
        run_dir: folder of the checkpoints.
        folder: the temporary folder in it.

    Example:
        >>> import tempfile
        >>> staging = Staging.beside(tempfile.mkdtemp())
        >>> staging.clear()
        >>> os.makedirs(staging.path("checkpoint-1"))
        >>> staging.seal("checkpoint-1", CheckpointRecord.describe(staging.path("checkpoint-1"), None))
        >>> staging.finish()
        >>> sorted(os.listdir(staging.run_dir))
        ['checkpoint-1', 'trainplus_checkpoints']
    """

    run_dir: str
    folder: str

    @classmethod
    def beside(cls, run_dir: str, folder_name: str | None = None) -> Staging:
        """Return the temporary folder of this process, or of the one that ``folder_name`` names."""
        return cls(run_dir, os.path.join(run_dir, folder_name or Writer.current().folder_name))

    def path(self, name: str) -> str:
        """Return where the checkpoint ``name`` is written."""
        return os.path.join(self.folder, name)

    @property
    def exists(self) -> bool:
        """Whether anything has been written."""
        return os.path.isdir(self.folder)

    def clear(self) -> None:
        """Remove what an earlier save of this process left behind when it failed."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def seal(self, name: str, record: CheckpointRecord) -> None:
        """Flush a written checkpoint to the disk and say that it is whole: from here on it counts."""
        sync_tree(self.path(name))
        record.write(os.path.join(self.folder, RECORD))

    def finish(self) -> None:
        """Put a sealed checkpoint in its place; continues where a kill left off."""
        record = CheckpointRecord.read(os.path.join(self.folder, RECORD))
        if record is None or not CHECKPOINT.match(record.checkpoint):
            return
        new, final = self.path(record.checkpoint), os.path.join(self.run_dir, record.checkpoint)
        if os.path.isdir(new):
            if os.path.isdir(final):
                self._put_aside(final, new)
            os.rename(new, final)
            sync_path(self.run_dir)
        records = os.path.join(self.run_dir, RECORDS)
        os.makedirs(records, exist_ok=True)
        os.replace(os.path.join(self.folder, RECORD), os.path.join(records, f"{record.checkpoint}.json"))
        sync_path(records)
        self.clear()

    def _put_aside(self, final: str, new: str) -> None:
        """Move away what stands in the new checkpoint's place; it is deleted when the new one stands there."""
        aside = os.path.join(self.folder, REPLACED)
        shutil.rmtree(aside, ignore_errors=True)
        if not os.path.isfile(os.path.join(final, TRAINER_STATE_NAME)):
            _keep_added_files(final, new)
        os.rename(final, aside)


def _keep_added_files(final: str, new: str) -> None:
    """Keep what a callback wrote into the folder of a step before its checkpoint, as upstream would."""
    for name in sorted(os.listdir(final)):
        target = os.path.join(new, name)
        if not _WRITTEN_BY_TRAINERS.search(name) and not os.path.exists(target):
            os.rename(os.path.join(final, name), target)


def recover(run_dir: str | Path) -> list[str]:
    """Finish or remove what killed processes left in a run's folder; of living processes nothing is touched.

    Returns:
        Names of the temporary folders that are gone now.

    Example:
        >>> import tempfile
        >>> recover(tempfile.mkdtemp())
        []
    """
    if not os.path.isdir(run_dir):
        return []
    done = []
    for name in sorted(os.listdir(run_dir)):
        writer, folder = Writer.of(name), Path(run_dir, name)
        if writer is None or not folder.is_dir() or not writer.is_gone(folder):
            continue
        staging = Staging.beside(str(run_dir), name)
        staging.finish()
        staging.clear()
        done.append(name)
    return done
