"""A DeepSpeed engine started from a checkpoint of other processes, or of other trained parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn.functional import pad
from transformers.utils import logging

from hf_trainplus.training.stages.zero_shards import ZeroShards, written_by_zero

if TYPE_CHECKING:
    from torch import nn
    from transformers import Trainer

logger = logging.get_logger("hf_trainplus")


class ZeroCrossing:
    """Loads an engine by the names of parameters where DeepSpeed itself cannot: it knows equal layouts only.

    Args:
        trainer: of the run; without DeepSpeed nothing is done.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._shards: ZeroShards | None = None

    def takes(self, checkpoint: str) -> bool:
        """Say whether other processes wrote a checkpoint, or one with other trained parameters.

        Args:
            checkpoint: folder that the stage starts from.
        """
        self._shards = None
        if not self._trainer.is_deepspeed_enabled or not written_by_zero(checkpoint):
            return False
        self._shards = ZeroShards(checkpoint)
        trained = {name for name, one in self._model.named_parameters() if one.requires_grad}
        return (self._shards.world_size, self._shards.names) != (self._trainer.args.world_size, trained)

    def optimizer_made(self, optimizer: Any) -> None:
        """Group the parameters as the moments of the checkpoint need it."""
        if self._shards is not None:
            split_by_step(optimizer, self._model, self._shards)

    def load(self, *, settings: bool) -> None:
        """Load the engine that was made since ``takes`` said True.

        Args:
            settings: whether the groups' settings are the checkpoint's too, as in the middle of a stage.

        Raises:
            ValueError: the checkpoint lacks a parameter, or the engine keeps its optimizer in another way.
        """
        if self._shards is not None:
            load_engine(self._trainer, self._shards, settings=settings)
            self._shards = None

    @property
    def _model(self) -> nn.Module:
        return cast("nn.Module", self._trainer.model)


def split_by_step(optimizer: Any, model: nn.Module, shards: ZeroShards) -> None:
    """Put parameters for which the optimizer took other numbers of steps into groups of their own, in place.

    DeepSpeed keeps one tensor and one step count a group, so what a stage unfreezes would start with the steps of the
    others. An optimizer that DeepSpeed makes from its configuration stays as it is.

    Args:
        optimizer: a torch optimizer before its first step.
        model: the model that it trains.
        shards: the checkpoint that it will start from.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        return
    steps = {one: shards.step(name) for name, one in model.named_parameters()}
    optimizer.param_groups[:] = [
        {**group, "params": params} for group in optimizer.param_groups for params in _by_step(group["params"], steps)
    ]


def _by_step(parameters: Iterable[nn.Parameter], steps: Mapping[nn.Parameter, int]) -> list[list[nn.Parameter]]:
    found: dict[int, list[nn.Parameter]] = {}
    for parameter in parameters:
        found.setdefault(steps[parameter], []).append(parameter)
    return [found[step] for step in sorted(found, reverse=True)]


def load_engine(trainer: Trainer, shards: ZeroShards, *, settings: bool) -> None:
    """Load weights, moments and counters of a checkpoint into the engine by the names of parameters.

    The schedule is not touched. A parameter that the checkpoint did not train starts with fresh moments.

    Args:
        trainer: its model has just been wrapped.
        shards: the checkpoint.
        settings: whether the groups' settings are the checkpoint's too, as in the middle of a stage.

    Raises:
        ValueError: the checkpoint lacks a parameter, or the engine keeps its optimizer in another way.
    """
    engine = cast("Any", trainer.model_wrapped)
    optimizer = engine.optimizer
    if not (
        hasattr(optimizer, "single_partition_of_fp32_groups") or hasattr(optimizer, "fp32_partitioned_groups_flat")
    ):
        raise ValueError(
            f"{shards.folder} was written by other processes or for other trained parameters, and "
            f"{type(optimizer).__name__} cannot take it over; set zero_optimization.stage to 2 or 3."
        )
    _load_weights(engine.module, shards)
    optimizer.refresh_fp32_params()
    _make_states(optimizer, engine.module, shards)
    for name, parameter in engine.module.named_parameters():
        if parameter.requires_grad and name in shards.names:
            _set(parameter, cast("torch.Tensor", shards.weight(name)))
            for key, moment in shards.moments(name).items():
                _set(parameter, moment, key)
    vars(optimizer).update(shards.scaling)
    vars(engine).update(shards.counters)
    if settings:
        for group, saved in zip(optimizer.param_groups, shards.settings, strict=True):
            group.update(saved)


def _load_weights(module: nn.Module, shards: ZeroShards) -> None:
    for name, parameter in module.named_parameters():
        value = shards.weight(name)
        if value is None and parameter.requires_grad:
            raise ValueError(f"{shards.folder} holds no parameter {name!r}, which this stage trains.")
        with _gathered(parameter):
            if value is not None:  # an adapter's checkpoint leaves the frozen model out
                parameter.data.copy_(value)
    buffers = shards.buffers
    for name, buffer in module.named_buffers():
        if name in buffers:
            buffer.copy_(buffers[name])


def _gathered(parameter: nn.Parameter) -> AbstractContextManager[Any]:
    if not hasattr(parameter, "ds_id"):
        return nullcontext()
    import deepspeed

    context: AbstractContextManager[Any] = deepspeed.zero.GatheredParameters([parameter], modifier_rank=0)
    return context


def _make_states(optimizer: Any, module: nn.Module, shards: ZeroShards) -> None:
    """Make the states that the first step would make, with the step counts of the checkpoint."""
    from deepspeed.utils import lazy_init_hp_params_optimizer_state

    names = {id(parameter): name for name, parameter in module.named_parameters()}
    states = optimizer.optimizer.state
    split = hasattr(optimizer, "fp32_partitioned_groups_flat")
    flats = optimizer.fp32_partitioned_groups_flat if split else optimizer.single_partition_of_fp32_groups
    groups = optimizer.fp16_groups if split else optimizer.bit16_groups
    for flat, group in zip(flats, groups, strict=True):
        known = [names[id(one)] for one in group if names[id(one)] in shards.names]
        first = next((name for name in known if shards.moments(name)), None)
        if first is None:
            continue
        states[flat] = {
            **{key: torch.zeros_like(flat, dtype=value.dtype) for key, value in shards.moments(first).items()},
            **deepcopy(shards.counts(first)),
        }
        if len({shards.step(names[id(one)]) for one in group}) > 1:
            logger.warning("DeepSpeed's optimizer counts steps once a group: parameters that start fresh share them.")
        if not split:
            lazy_init_hp_params_optimizer_state(group, flat, states)


def _set(parameter: nn.Parameter, value: torch.Tensor, key: str | None = None) -> None:
    """Set what this process keeps of a parameter's float32 copy, or of one of its moments."""
    from deepspeed.utils import (
        safe_set_full_fp32_param,
        safe_set_full_optimizer_state,
        safe_set_local_fp32_param,
        safe_set_local_optimizer_state,
    )

    split = hasattr(parameter, "ds_id")
    given = _own_part(parameter, value) if split else value
    if key is None:
        (safe_set_local_fp32_param if split else safe_set_full_fp32_param)(parameter, given)
    else:
        (safe_set_local_optimizer_state if split else safe_set_full_optimizer_state)(parameter, given, key)


def _own_part(parameter: Any, value: torch.Tensor) -> torch.Tensor:
    length, rank = parameter.ds_tensor.numel(), torch.distributed.get_rank(parameter.ds_process_group)
    flat = value.flatten()[rank * length : (rank + 1) * length]
    return pad(flat, (0, length - flat.numel()))
