"""Two ranks whose weights or optimizer are sharded: checkpoints take their place whole, and a resume goes on equal.

torchrun --nproc_per_node 2 tests/support/sharded_checkpoints.py FOLDER fsdp2|zero2|zero3
"""

import json
import os
import shutil
import sys
from pathlib import Path

import torch
from accelerate import DistributedType, FullyShardedDataParallelPlugin

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from hf_trainplus.training.checkpoints.whole import why_torn
from tests.support import tiny
from tests.support.launch import leave

KINDS = {
    "fsdp2": {},
    **{
        f"zero{stage}": {
            "deepspeed": {
                "zero_optimization": {"stage": stage},
                "zero_allow_untested_optimizer": True,
                "train_micro_batch_size_per_gpu": "auto",
                "gradient_accumulation_steps": "auto",
                "train_batch_size": "auto",
            }
        }
        for stage in (2, 3)
    },
}


class ShardedOnCPU(PlusTrainer):
    """FSDP2 over gloo: Accelerate takes its plugin on devices only, so it is handed over where it would be set."""

    layer = "LlamaDecoderLayer"

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        state = self.accelerator.state
        state.distributed_type = DistributedType.FSDP
        state.fsdp_plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="transformer_based_wrap",
            transformer_cls_names_to_wrap=[self.layer],
            reshard_after_forward=True,
            state_dict_type="SHARDED_STATE_DICT",
        )
        self.is_fsdp_enabled = True


def train(folder, kind, **options):
    arguments = {
        "max_steps": 4,
        "per_device_train_batch_size": 2,
        "save_strategy": "steps",
        "save_steps": 1,
        "save_total_limit": 2,
        "logging_steps": 3,
        "learning_rate": 1e-2,
        "ddp_backend": "gloo",
        **KINDS[kind],
    }
    trainer = (ShardedOnCPU if kind == "fsdp2" else PlusTrainer)(
        tiny.llama(),
        PlusTrainingArguments(**tiny.quiet(folder, **arguments)),
        train_dataset=tiny.causal_rows(23, low=3),
        data_collator=tiny.PaddingCollator(),
    )
    trainer.train(**options)
    return trainer


def shards(trainer):
    """This rank's part of each tensor, or the whole where none is split."""
    tensors = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    return {name: getattr(value, "to_local", lambda value=value: value)().clone() for name, value in tensors.items()}


def main(root, kind):
    ranks, folder = torch.distributed, root / "run"
    whole = train(folder, kind)
    weights = shards(whole)
    names = sorted(name for name in os.listdir(folder) if name.startswith(("checkpoint-", "_")))
    files = sorted(
        path.relative_to(folder / "checkpoint-4").as_posix() for path in (folder / "checkpoint-4").rglob("*")
    )
    found = {"names": names, "files": files, "torn": [why_torn(folder / name) for name in names]}
    ranks.barrier()
    if ranks.get_rank() == 0:
        shutil.rmtree(folder / "checkpoint-4")
    ranks.barrier()
    resumed = train(folder, kind, resume_from_checkpoint=True)
    again = shards(resumed)
    losses = [[entry["loss"] for entry in one.state.log_history if "loss" in entry] for one in (whole, resumed)]
    own = [losses[0] == losses[1] and len(losses[0]) > 0, all(map(torch.equal, weights.values(), again.values()))]
    everywhere = [None] * ranks.get_world_size()
    ranks.all_gather_object(everywhere, own)
    if ranks.get_rank() == 0:
        print("FOUND " + json.dumps({**found, "losses_and_weights_equal": everywhere}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
    leave()
