"""A DeepSpeed ZeRO checkpoint read parameter by parameter, whatever the processes and groups that wrote it."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

# DeepSpeed's file with the name of the folder of the newest checkpoint
_LATEST = "latest"


@dataclass(frozen=True)
class Place:
    """Where a parameter lies in the flat tensors of a checkpoint.

    Args:
        group: flat tensor, by its number.
        start: first element; of each process's own part under ZeRO-3, of all parts in a row before it.
        shape: of the whole parameter.
    """

    group: int
    start: int
    shape: torch.Size


class ZeroShards:
    """Weights and optimizer moments of a checkpoint that DeepSpeed wrote under ZeRO-1, 2 or 3.

    Files are mapped into memory, so that a tensor is read when it is asked for. It writes nothing, and it does not
    know experts that are split over processes.

    Args:
        checkpoint: folder of the Trainer's checkpoint, with DeepSpeed's ``latest`` in it.

    Raises:
        ValueError: the folder holds no ZeRO checkpoint.
    """

    def __init__(self, checkpoint: str) -> None:
        if not written_by_zero(checkpoint):
            raise ValueError(
                f"{checkpoint} holds no optimizer that ZeRO has split; set zero_optimization.stage to 1, 2 or 3."
            )
        self.folder = _tagged(checkpoint)
        self._parts = [_load(path)["optimizer_state_dict"] for path in self._files("optim")]
        self._models = [_load(path) for path in self._files("model")]
        self.stage = int(self._parts[0]["zero_stage"])

    @property
    def world_size(self) -> int:
        """Number of processes that wrote it."""
        return len(self._parts)

    @property
    def names(self) -> set[str]:
        """Parameters that were trained."""
        return set(self._places)

    @property
    def scaling(self) -> dict[str, Any]:
        """State of the loss scaling: ``loss_scaler`` and ``dynamic_loss_scale``."""
        return {name: self._parts[0][name] for name in ("loss_scaler", "dynamic_loss_scale")}

    @property
    def counters(self) -> dict[str, int]:
        """The engine's steps and samples."""
        model = self._models[0]
        return {name: model[name] for name in ("global_steps", "global_samples", "skipped_steps") if name in model}

    @property
    def settings(self) -> list[dict[str, Any]]:
        """Settings of each of the optimizer's groups, the parameters left out."""
        groups = self._base(0).get("param_groups", ())
        return [{key: value for key, value in group.items() if key != "params"} for group in groups]

    @property
    def buffers(self) -> dict[str, torch.Tensor]:
        """Buffers of the model by name."""
        model = self._models[0]
        return {name: model["module"][name] for name in model["buffer_names"] if name in model["module"]}

    def moments(self, name: str) -> dict[str, torch.Tensor]:
        """Return what the optimizer keeps for each element of a parameter, by key; nothing before its first step.

        Args:
            name: a parameter that was trained.
        """
        place = self._places[name]
        state, size = self._state(0, place.group), self._master(0, place.group).numel()
        keys = [key for key, value in state.items() if isinstance(value, torch.Tensor) and _is_flat(value, size)]
        return {key: self._whole(place, [self._state(rank, place.group)[key] for rank in self._ranks]) for key in keys}

    def counts(self, name: str) -> dict[str, Any]:
        """Return what the optimizer keeps once for a parameter's group: its ``step``."""
        place = self._places[name]
        state, size = self._state(0, place.group), self._master(0, place.group).numel()
        return {
            key: value
            for key, value in state.items()
            if not (isinstance(value, torch.Tensor) and _is_flat(value, size))
        }

    def step(self, name: str) -> int:
        """Return how many steps the optimizer took for a parameter, 0 when it did not train it."""
        return int(self.counts(name).get("step", 0)) if name in self._places else 0

    def weight(self, name: str) -> torch.Tensor | None:
        """Return a parameter, in float32 when it was trained; None when the checkpoint leaves it out."""
        if name in self._places:
            place = self._places[name]
            return self._whole(place, [self._master(rank, place.group) for rank in self._ranks])
        if self.stage <= 2:
            found: torch.Tensor | None = self._models[0]["module"].get(name)
            return found
        shapes = self._models[0].get("frozen_param_shapes") or {}
        if name not in shapes:
            return None
        parts = [model["frozen_param_fragments"][name].flatten() for model in self._models]
        return torch.cat(parts)[: shapes[name].numel()].view(shapes[name])

    # ---- where things lie ----------------------------------------------------------------------------------------

    @property
    def _ranks(self) -> range:
        return range(self.world_size)

    @cached_property
    def _places(self) -> dict[str, Place]:
        return {name: place for group in range(len(self._shapes)) for name, place in self._places_of(group)}

    @property
    def _shapes(self) -> Sequence[Mapping[str, torch.Size]]:
        shapes: Sequence[Mapping[str, torch.Size]] = self._models[0]["param_shapes"]
        return shapes

    def _places_of(self, group: int) -> Iterator[tuple[str, Place]]:
        paddings = (self._parts[0].get("param_alignment_paddings") or {}) if self.stage <= 2 else {}
        start = 0
        for number, (name, given) in enumerate(self._shapes[group].items()):
            shape = torch.Size(given)
            yield name, Place(group, start, shape)
            start += shape.numel() if self.stage <= 2 else math.ceil(shape.numel() / self.world_size)
            start += paddings[group][number] if paddings else 0

    def _whole(self, place: Place, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        size = place.shape.numel()
        if self.stage <= 2:
            return _across(parts, place.start, size).view(place.shape)
        own = math.ceil(size / self.world_size)
        return torch.cat([part.narrow(0, place.start, own) for part in parts])[:size].view(place.shape)

    def _base(self, rank: int) -> Any:
        return self._parts[rank]["base_optimizer_state" if self.stage <= 2 else "optimizer_state_dict"]

    def _state(self, rank: int, group: int) -> Mapping[str, Any]:
        base = self._base(rank)
        # a list under DeepSpeed's elastic checkpoints
        found: Mapping[str, Any] = base[group] if isinstance(base, list) else base["state"].get(group, {})
        return found

    def _master(self, rank: int, group: int) -> torch.Tensor:
        key = "single_partition_of_fp32_groups" if self.stage <= 2 else "fp32_flat_groups"
        found: torch.Tensor = self._parts[rank][key][group]
        return found

    def _files(self, kind: str) -> list[str]:
        from deepspeed.utils.zero_to_fp32 import get_model_state_files, get_optim_files

        found: list[str] = (get_optim_files if kind == "optim" else get_model_state_files)(self.folder)
        return found


def written_by_zero(checkpoint: str) -> bool:
    """Say whether a folder holds a checkpoint whose optimizer ZeRO split over the processes."""
    latest = os.path.join(checkpoint, _LATEST)
    return os.path.isfile(latest) and bool(
        glob.glob(os.path.join(glob.escape(_tagged(checkpoint)), "*_optim_states.pt"))
    )


def _tagged(checkpoint: str) -> str:
    with open(os.path.join(checkpoint, _LATEST), encoding="utf-8") as file:
        return os.path.join(checkpoint, file.read().strip())


def _load(path: str) -> Any:
    # the run's own file, which DeepSpeed reads in the same way: it holds objects of DeepSpeed's
    return torch.load(path, map_location="cpu", mmap=True, weights_only=False)


def _is_flat(value: torch.Tensor, size: int) -> bool:
    # padding is cut off the weights and kept in the moments
    return value.dim() == 1 and value.numel() >= size


def _across(parts: Sequence[torch.Tensor], start: int, size: int) -> torch.Tensor:
    """Return elements of tensors that lie in a row, each as long as the first one but for the last ones."""
    length = max(parts[0].numel(), 1)
    found = []
    for number, part in enumerate(parts):
        begin = max(start - number * length, 0)
        end = min(start + size - number * length, part.numel())
        if begin < end:
            found.append(part[begin:end])
    return torch.cat(found)
