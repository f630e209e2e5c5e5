"""Runs a script under FSDP on the CPU: ``accelerate launch --use_fsdp ... fsdp_on_cpu.py SCRIPT ARGUMENTS``.

Accelerate reads what the launcher says of FSDP on accelerators only: on the CPU the same command trains under DDP, and
nothing says so. Here the plugin that it has made of the launcher's options is put where it would be set.
"""

import os
import runpy
import sys

import torch
from accelerate.state import AcceleratorState, DistributedType, PartialState
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, _init_utils
from transformers import Trainer

_init = AcceleratorState.__init__


def init(self, *args, **kwargs):
    _init(self, *args, **kwargs)
    plugin = kwargs.get("fsdp_plugin")
    if plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, plugin
        PartialState._shared_state["distributed_type"] = DistributedType.FSDP  # from where each later state copies it


def say_what_trained():
    """Print, on one rank, whether the model was sharded."""
    train = Trainer.train

    def told(trainer, *args, **kwargs):
        output = train(trainer, *args, **kwargs)
        if trainer.is_world_process_zero() and isinstance(trainer.model, (FSDPModule, FullyShardedDataParallel)):
            print("trained under FSDPModule", flush=True)
        return output

    Trainer.train = told


if __name__ == "__main__":
    assert os.environ["ACCELERATE_USE_FSDP"] == "true"
    AcceleratorState.__init__ = init
    # FSDP1 takes the first CPU for another device than the CPU
    _init_utils._get_device_from_device_id = lambda *given, **named: torch.device("cpu")
    say_what_trained()
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
