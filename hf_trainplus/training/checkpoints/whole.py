"""Whether a checkpoint is whole: all that a resume reads is there and none of it is cut off."""

from __future__ import annotations

import json
import re
from pathlib import Path

from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME

from hf_trainplus.training.checkpoints.files import sizes
from hf_trainplus.training.checkpoints.record import CheckpointRecord, record_of
from hf_trainplus.training.checkpoints.structure import why_broken

_DEEPSPEED_TAG = "latest"
_NO_WEIGHTS = re.compile(
    r"(^|[-_/])(optimizer|scheduler|scaler|training_args|rng_state|random_states)[^/]*$|optim_states|^optimizer_\d+/"
)
_EDITED = (".json", ".md", ".txt")
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".distcp", ".ckpt", ".h5", ".msgpack")


def why_torn(checkpoint_dir: str | Path) -> str | None:
    """Return what a checkpoint lacks, None when it is whole.

    It reads names, sizes, headers and the small JSON files, never a tensor: bits that were flipped inside a tensor are
    not seen. A checkpoint that PlusTrainer wrote is held against its record; any other one, stock's too, is judged by
    its own structure. A checkpoint of weights alone (``save_only_model``) is whole.

    Args:
        checkpoint_dir: the folder.

    Example:
        >>> import tempfile
        >>> why_torn(tempfile.mkdtemp())
        'trainer_state.json is missing'
    """
    folder = Path(checkpoint_dir)
    if not folder.is_dir():
        return "there is no such folder"
    record = record_of(folder)
    return _against(record, folder) if record is not None else _by_structure(folder)


def _against(record: CheckpointRecord, folder: Path) -> str | None:
    found = sizes(folder)
    for name, size in record.files.items():
        if name not in found:
            return f"{name} is missing"
        if found[name] == size:
            continue
        if found[name] == 0 or folder.joinpath(name).suffix not in _EDITED:
            return f"{name} holds {found[name]:,} of {size:,} bytes"
        # people edit these, but a half of one is none
        if (broken := why_broken(folder / name)) is not None:
            return f"{name} {broken}"
    return None


def _by_structure(folder: Path) -> str | None:
    state = folder / TRAINER_STATE_NAME
    broken = why_broken(state)
    if broken is not None:
        return f"{TRAINER_STATE_NAME} {broken}"
    said = json.loads(state.read_text(encoding="utf-8"))
    if not isinstance(said, dict) or "global_step" not in said:
        return f"{TRAINER_STATE_NAME} has no global_step"
    names = list(sizes(folder))
    for name in names:
        broken = why_broken(folder / name)
        if broken is not None:
            return f"{name} {broken}"
    return _missing_part(folder, names)


def _missing_part(folder: Path, names: list[str]) -> str | None:
    """Look for the parts that belong together; the trainer's state is written last, so that mostly one was deleted."""
    if not any(name.endswith(_WEIGHT_SUFFIXES) and not _NO_WEIGHTS.search(name) for name in names):
        return "the weights are missing"
    for name in names:
        if name.endswith(".index.json"):
            shards = set(json.loads((folder / name).read_text(encoding="utf-8")).get("weight_map", {}).values())
            gone = sorted(shard for shard in shards if not (folder / name).with_name(shard).is_file())
            if gone:
                return f"{gone[0]} is missing, which {name} names"
    if _DEEPSPEED_TAG in names:
        tag = (folder / _DEEPSPEED_TAG).read_text(encoding="utf-8").strip()
        return None if tag and any(name.startswith(f"{tag}/") for name in names) else f"the folder {tag!r} is missing"
    return _missing_optimizer(names)


def _missing_optimizer(names: list[str]) -> str | None:
    optimizer = any(name.startswith("optimizer") or name.endswith(f"-{OPTIMIZER_NAME}") for name in names)
    scheduler = SCHEDULER_NAME in names
    weights_alone = not optimizer and not scheduler and not any(name.startswith("rng_state") for name in names)
    if weights_alone or (optimizer and scheduler):
        return None
    return f"{SCHEDULER_NAME if optimizer else OPTIMIZER_NAME} is missing"
