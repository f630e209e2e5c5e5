"""Optimizer moments carried over a boundary by the names of parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from transformers.trainer import OPTIMIZER_NAME
from transformers.utils import logging

if TYPE_CHECKING:
    from torch import nn
    from transformers import Trainer

logger = logging.get_logger("hf_trainplus")

# kept in every parameter group, hence in optimizer.pt
NAMES = "param_names"


@dataclass(frozen=True)
class Schedule:
    """A schedule, and the settings of the optimizer's groups, as they are when a stage begins.

    Args:
        scheduler: state of the schedule.
        groups: settings of each group, its parameters left out.
    """

    scheduler: dict[str, Any]
    groups: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, scheduler: Any, optimizer: Any) -> Schedule:
        """Read both."""
        groups = tuple({name: group[name] for name in group if name != "params"} for group in optimizer.param_groups)
        return cls(deepcopy(scheduler.state_dict()), groups)

    def put_back(self, scheduler: Any, optimizer: Any) -> None:
        """Set both again, after the checkpoint of another stage was loaded over them."""
        inner = getattr(scheduler, "scheduler", scheduler)
        inner.load_state_dict(deepcopy(self.scheduler))
        for group, settings in zip(optimizer.param_groups, self.groups, strict=True):
            group.update(settings)


def name_parameters(optimizer: Any, model: nn.Module) -> None:
    """Write the names of its parameters into every group of an optimizer; they are saved with it.

    Args:
        optimizer: a torch optimizer, or a wrapper with ``param_groups``.
        model: the model whose parameters it updates.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        group[NAMES] = [names.get(id(parameter), "") for parameter in group["params"]]


def carry_over(optimizer: Any, saved: Mapping[str, Any]) -> tuple[int, int]:
    """Give an optimizer the moments that a checkpoint has for parameters of the same name and shape.

    Learning rates and other settings of its groups stay; parameters that the checkpoint does not know start fresh.

    Args:
        optimizer: the optimizer of the stage that begins; its groups have names.
        saved: state of the optimizer of the stage before, as ``optimizer.state_dict()`` gave it.

    Returns:
        How many parameters took their moments over, and how many start fresh.
    """
    moments = _by_name(saved, optimizer.param_groups)
    here = optimizer.state_dict()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names = [name for group in optimizer.param_groups for name in group[NAMES]]
    indices = [index for group in here["param_groups"] for index in group["params"]]
    state = {
        index: moments[name]
        for index, name, parameter in zip(indices, names, parameters, strict=True)
        if name in moments and _fits(moments[name], parameter)
    }
    optimizer.load_state_dict({"state": state, "param_groups": here["param_groups"]})
    return len(state), len(names) - len(state)


def cross(trainer: Trainer, checkpoint: str, schedule: Schedule | None) -> None:
    """Give the optimizer the moments of the checkpoint at a boundary.

    The schedule stays as it was made: it begins anew with each stage. DeepSpeed has loaded its moments already when
    this is called, FSDP loads them by name itself.

    Args:
        trainer: its optimizer is that of the stage that begins.
        checkpoint: folder with the optimizer of the stage before.
        schedule: the schedule as it was made.
    """
    if trainer.is_fsdp_enabled:
        from hf_trainplus.training.stages.fsdp_crossing import load_moments

        load_moments(trainer, checkpoint)
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        if schedule is not None:
            schedule.put_back(trainer.lr_scheduler, trainer.optimizer)
        return
    name_parameters(trainer.optimizer, cast("nn.Module", trainer.model))
    path = os.path.join(checkpoint, OPTIMIZER_NAME)
    if not os.path.isfile(path):
        logger.warning(f"{checkpoint} has no {OPTIMIZER_NAME}: the optimizer starts fresh.")
        return
    on_host = trainer.args.world_size == 1 or trainer.args.device.type == "cpu"
    saved = torch.load(path, map_location="cpu" if on_host else trainer.args.device, weights_only=True)
    kept, fresh = carry_over(trainer.optimizer, saved)
    logger.info(f"optimizer moments: {kept} parameters carry theirs over the boundary, {fresh} start fresh.")


def _by_name(saved: Mapping[str, Any], groups: Any) -> dict[str, Any]:
    """Return name -> moments; a stock checkpoint has no names, and its groups stand in the same order."""
    found: dict[str, Any] = {}
    unnamed = any(NAMES not in group for group in saved["param_groups"])
    sizes = [len(group["params"]) for group in saved["param_groups"]]
    if unnamed and sizes != [len(group["params"]) for group in groups]:
        logger.warning("the checkpoint's optimizer names no parameters and has others than this one: it starts fresh.")
        return found
    for group, own in zip(saved["param_groups"], groups if unnamed else saved["param_groups"], strict=True):
        for index, name in zip(group["params"], own[NAMES], strict=True):
            if index in saved["state"]:
                found[name] = saved["state"][index]
    return found


def _fits(moments: Mapping[str, Any], parameter: torch.Tensor) -> bool:
    """Say whether moments belong to a parameter of this shape; factored ones have fewer dimensions and fit any."""
    whole = [value for value in moments.values() if isinstance(value, torch.Tensor) and value.dim() == parameter.dim()]
    return all(value.shape == parameter.shape for value in whole)
