"""Weights of checkpoints that may still be the best: kept while they are, loaded only when a decision needs them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from hf_trainplus.training.checkpoints.files import sync_path

FOLDER = "trainplus_candidates"
REFERENCES = "trainplus_race_candidates.json"
MEMORY_BYTES = 2**31


class CandidateWeights:
    """Keeps the tensors that training changes, of several checkpoints, in host memory or on disk.

    Frozen parameters are never copied: under PEFT only the adapters are kept. Loading puts the live weights back
    bit for bit. It holds no optimizer state, so a candidate is no checkpoint to resume from. It works on models whose
    parameters are whole on every rank (one device, DDP), not on sharded ones.

    Args:
        model: the model itself, not its distributed wrapper.
        folder: where candidates are written.
        writes: True on the one process that writes files.
        barrier: waits for all processes; called after files were written.
        memory_bytes: most host memory for all candidates together; larger ones go to disk at once.
        most_candidates: how many are kept at the same time.
        clock: seconds, monotonic.

    Example:
        >>> import tempfile
        >>> model = nn.Linear(1, 1)
        >>> kept = CandidateWeights(model, tempfile.mkdtemp())
        >>> _ = kept.keep(1)
        >>> _ = nn.init.zeros_(model.weight)
        >>> with kept.loaded(1):
        ...     bool(model.weight != 0)
        True
        >>> model.weight.item()
        0.0
    """

    def __init__(
        self,
        model: nn.Module,
        folder: str,
        *,
        writes: bool = True,
        barrier: Callable[[], None] = lambda: None,
        memory_bytes: int = MEMORY_BYTES,
        most_candidates: int = 8,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self.folder = folder
        self._writes = writes
        self._barrier = barrier
        self._clock = clock
        size = sum(tensor.numel() * tensor.element_size() for tensor in changing_tensors(model).values())
        self.in_memory = size * most_candidates <= memory_bytes
        self._kept: dict[int, dict[str, torch.Tensor] | None] = {}

    @property
    def steps(self) -> list[int]:
        """Steps of the candidates that are kept, in rising order."""
        return sorted(self._kept)

    def path(self, step: int) -> str:
        """Return the file of a candidate."""
        return os.path.join(self.folder, f"step-{step}.safetensors")

    def keep(self, step: int) -> float:
        """Keep the live weights as those of ``step``; return the seconds that it took."""
        start = self._clock()
        tensors = {name: tensor.detach().cpu().clone() for name, tensor in changing_tensors(self._model).items()}
        self._kept[step] = tensors
        if not self.in_memory:
            self._write(step)
            self._kept[step] = None
        return self._clock() - start

    def drop(self, step: int) -> None:
        """Forget a candidate; its file stays until ``remove_unreferenced``."""
        self._kept.pop(step, None)

    def persist(self) -> None:
        """Write every candidate that is only in memory, so that a state that names it can be resumed from."""
        if self._writes:
            for step in self.steps:
                if not os.path.isfile(self.path(step)):
                    self._write_file(step)
        self._barrier()  # once on every rank: what is on the disk already differs while the first one writes

    def restore(self, steps: list[int]) -> None:
        """Take over candidates that an earlier process wrote.

        Raises:
            FileNotFoundError: the file of one is missing.
        """
        for step in steps:
            if not os.path.isfile(self.path(step)):
                raise FileNotFoundError(
                    f"the weights of candidate {step} are not at {self.path(step)}; the race in this checkpoint needs "
                    "them. Resume from another checkpoint, or start with eval_mode='full'."
                )
        self._kept = dict.fromkeys(steps)

    @contextmanager
    def loaded(self, step: int) -> Iterator[None]:
        """Run what is inside with the weights of ``step``; the live weights come back afterwards."""
        live = {name: tensor.detach().clone() for name, tensor in changing_tensors(self._model).items()}
        self.load(step)
        try:
            yield
        finally:
            self._put(live)

    def load(self, step: int) -> None:
        """Put the weights of ``step`` into the model for good."""
        self._put(self._tensors(step))

    def forget(self) -> None:
        """Forget every candidate, when the run is over; files go with ``remove_unreferenced``."""
        self._kept.clear()

    def remove_unreferenced(self, referenced: set[int]) -> None:
        """Delete files of candidates that nothing on disk and nothing here names any more."""
        if not self._writes or not os.path.isdir(self.folder):
            return
        named = referenced | set(self._kept)
        for name in os.listdir(self.folder):
            step = name.removeprefix("step-").removesuffix(".safetensors")
            if step.isdigit() and int(step) not in named:
                os.remove(os.path.join(self.folder, name))
        if not os.listdir(self.folder):
            os.rmdir(self.folder)

    def _tensors(self, step: int) -> dict[str, torch.Tensor]:
        from safetensors.torch import load_file

        kept = self._kept[step]
        return load_file(self.path(step)) if kept is None else kept

    def _put(self, tensors: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, tensor in changing_tensors(self._model).items():
                tensor.copy_(tensors[name])

    def _write(self, step: int) -> None:
        if self._writes:
            self._write_file(step)
        self._barrier()

    def _write_file(self, step: int) -> None:
        from safetensors.torch import save_file

        os.makedirs(self.folder, exist_ok=True)
        temporary = f"{self.path(step)}.tmp"
        save_file(self._tensors(step), temporary)
        sync_path(temporary)
        os.replace(temporary, self.path(step))


def changing_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters that training updates and the buffers that are saved with a model; shared ones once."""
    saved = model.state_dict(keep_vars=True).keys()
    found: dict[str, torch.Tensor] = {name: value for name, value in model.named_parameters() if value.requires_grad}
    found |= {name: value for name, value in model.named_buffers() if name in saved}
    return found


def write_references(checkpoint_dir: str, steps: list[int]) -> None:
    """Name in a checkpoint the candidates that its race still needs."""
    os.makedirs(checkpoint_dir, exist_ok=True)
    with open(os.path.join(checkpoint_dir, REFERENCES), "w", encoding="utf-8") as file:
        json.dump(steps, file)


def referenced_candidates(run_dir: str) -> set[int]:
    """Return the candidates that any checkpoint of the run names."""
    named: set[int] = set()
    for name in sorted(os.listdir(run_dir)):
        path = os.path.join(run_dir, name, REFERENCES)
        if name.startswith("checkpoint-") and os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                named |= set(json.load(file))
    return named
