"""Moments of an optimizer that FSDP shards, over a boundary at which other parameters may be trained."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import torch
from accelerate.utils import load_fsdp_optimizer
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from transformers import Trainer
from transformers.trainer import SCHEDULER_NAME

from hf_trainplus.evaluation.ranks import Ranks

if TYPE_CHECKING:
    from torch import nn

WHOLE, SHARDS = "optimizer.bin", "optimizer_0"
"""Under which names Accelerate keeps a first optimizer: whole, and as shards in a folder."""


def load_moments(trainer: Trainer, checkpoint: str) -> None:
    """Give a sharded optimizer the moments that a checkpoint has for parameters of the same name.

    Accelerate's own loading refuses a parameter that the checkpoint has no moments for; here it starts fresh, as
    without FSDP; and of FSDP1's shards it loads none at all. Moments of parameters that are frozen now are passed over.
    Whole checkpoints of FSDP1 are loaded by Accelerate. It is a collective.

    Args:
        trainer: its optimizer is that of the stage that begins.
        checkpoint: folder with the optimizer of the stage before.
    """
    plugin, model, optimizer = trainer.accelerator.state.fsdp_plugin, trainer.model, trainer.optimizer
    whole = "FULL_STATE_DICT" in str(plugin.state_dict_type)
    if plugin.fsdp_version == 1 and whole:
        load_fsdp_optimizer(plugin, trainer.accelerator, optimizer, model, checkpoint)
        return
    options = StateDictOptions(
        full_state_dict=whole,
        cpu_offload=getattr(plugin.state_dict_config, "offload_to_cpu", False),
        broadcast_from_rank0=getattr(plugin.state_dict_config, "rank0_only", False),
        strict=False,
    )
    trainer.accelerator.wait_for_everyone()
    saved, names = _read_whole(trainer, checkpoint) if whole else _read_shards(trainer, checkpoint, options)
    set_optimizer_state_dict(model, optimizer, saved, options=options)  # type: ignore[arg-type]
    _begin_anew(trainer, names)
    trainer.accelerator.wait_for_everyone()


def resume_shards(trainer: Trainer, checkpoint: str) -> bool:
    """Load optimizer and schedule of a run that goes on from FSDP1's shards, of which Accelerate loads no moments.

    Args:
        trainer: its model and optimizer are made and its weights are loaded.
        checkpoint: folder that it is resumed from.

    Returns:
        False where upstream's own loading is right: nothing is loaded then.
    """
    plugin = trainer.accelerator.state.fsdp_plugin
    if plugin.fsdp_version != 1 or "SHARDED_STATE_DICT" not in str(plugin.state_dict_type):
        return False
    load_moments(trainer, checkpoint)
    path = os.path.join(checkpoint, SCHEDULER_NAME)
    cast("Any", trainer.lr_scheduler).load_state_dict(torch.load(path, weights_only=True))
    return True


def _begin_anew(trainer: Trainer, names: set[str]) -> None:
    """Forget the moments of parameters that the checkpoint has none for: PyTorch has made them by a step of its own."""
    optimizer, model = cast("Any", trainer.optimizer), cast("nn.Module", trainer.model)
    state = getattr(optimizer, "optimizer", optimizer).state
    for name, parameter in model.named_parameters():
        if _plain(name) not in names:
            state.pop(parameter, None)


_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")


def _plain(name: str) -> str:
    """Return a parameter's name without what compiling, checkpointing or FSDP1 puts around its module."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _read_whole(trainer: Trainer, checkpoint: str) -> tuple[Any, set[str]]:
    rank0_only = getattr(trainer.accelerator.state.fsdp_plugin.optim_state_dict_config, "rank0_only", False)
    saved: Any = {}
    if not trainer.accelerator.process_index or not rank0_only:
        saved = torch.load(os.path.join(checkpoint, WHOLE), map_location="cpu", weights_only=True)
    return saved, Ranks.current().from_first(set(saved.get("state", ())))


def _read_shards(trainer: Trainer, checkpoint: str, options: StateDictOptions) -> tuple[Any, set[str]]:
    """Read the shards into a new optimizer's state; what they lack stays as it is there."""
    state: Any = {"optimizer": get_optimizer_state_dict(trainer.model, trainer.optimizer, options=options)}  # type: ignore[arg-type]
    reader = FileSystemReader(os.path.join(checkpoint, SHARDS))
    load(state, storage_reader=reader, planner=DefaultLoadPlanner(allow_partial_load=True))
    begin = "optimizer.state."
    keys = (key for key in reader.read_metadata().state_dict_metadata if key.startswith(begin))
    return state["optimizer"], {key[len(begin) :].rpartition(".")[0] for key in keys}
