"""Two ranks, weights sharded by FSDP2: the loss without logits of each rank's rows, against one whole model."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from hf_trainplus.evaluation.chunked_causal import ChunkedCausalLoss
from hf_trainplus.evaluation.losses import find_loss_kind
from tests.support import loss_models as models
from tests.support.launch import leave


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    inputs = {name: value[2 * rank : 2 * rank + 2] for name, value in models.token_batch(4).items()}
    whole, sharded = models.llama(), models.llama()
    with torch.no_grad():
        expected = find_loss_kind(whole).example_losses(whole(**inputs), inputs)
    mesh = init_device_mesh("cpu", (2,))
    for layer in sharded.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded.lm_head, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    chunked = ChunkedCausalLoss()
    for _ in range(2):
        losses = chunked.example_losses(sharded, inputs)
        assert losses is not None, chunked.reason
        torch.testing.assert_close(losses.loss_sum, expected.loss_sum, rtol=1e-5, atol=0.0)
        assert losses.target_count.tolist() == expected.target_count.tolist()
    # The shards still train.
    sharded(**inputs).loss.backward()
    assert sharded.lm_head.weight.grad is not None
    dist.barrier()
    if rank == 0:
        print(f"rows agree on {dist.get_world_size()} ranks")
    leave()


if __name__ == "__main__":
    main()
