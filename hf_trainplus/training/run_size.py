"""How many devices a run has, and the seed of its data: read from the arguments in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import TrainingArguments


def device_count(args: TrainingArguments) -> int:
    """Return the devices of the whole run; a CPU rank counts as one."""
    return max(int(args.world_size), 1) * max(int(args.n_gpu), 1)


def data_seed(args: TrainingArguments) -> int:
    """Return the seed of what is drawn from data: ``data_seed`` where it is given, else ``seed``."""
    return int(args.seed if args.data_seed is None else args.data_seed)
