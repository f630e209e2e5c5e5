"""Generation on two ranks with unequal work; prints one JSON line of named findings on rank 0."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from hf_trainplus.evaluation.generate_batch import GenerationSettings
from hf_trainplus.evaluation.generation import GenerationLoop
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.rows import RowCollector
from hf_trainplus.evaluation.windows import LoadedBatch
from tests.support import tiny
from tests.support.counting_model import END, CountingModel, counting_rows
from tests.support.generation import ENDS, Recorder, completion_rows, counting, exact_match, sampling_llama
from tests.support.launch import leave


def batch_of(rows, positions):
    return LoadedBatch(np.array(positions), np.ones(len(positions), bool), tiny.PaddingCollator()(rows))


def collected(model, config, batches, **options):
    loop = GenerationLoop(
        model,
        GenerationSettings(config, 0, False, **options),
        collector=RowCollector(),
        ranks=Ranks.current(),
    )
    output = loop.run(batches)
    return [row[kept].tolist() for row, kept in zip(output.batch.ids, output.batch.generated, strict=True)]


def forward_is_a_collective(folder, found):
    """Rank 0 has 3 tokens to go, rank 1 has 9; every forward pass waits for the other rank, as a sharded one does."""
    meetings = []

    def meet():
        told = torch.ones(1)
        dist.all_reduce(told)
        meetings.append(float(told))

    rank = dist.get_rank()
    model = CountingModel(on_forward=meet)
    rows = counting_rows([END - 3, END - 9])[rank : rank + 1]
    answers = collected(model, model.generation_config, [batch_of(rows, [rank])], synced=True, max_new_tokens=30)
    found["lengths"] = [len(answer) for answer in answers]
    counts = [None, None]
    dist.all_gather_object(counts, len(meetings))
    found["forwards"] = counts


def weights_are_sharded(folder, found):
    """FSDP2 shards the weights; one rank's rows may be longer than the other's."""
    rank, rows = dist.get_rank(), completion_rows(4)
    whole, sharded = tiny.llama().eval(), tiny.llama().eval()
    mesh = init_device_mesh("cpu", (2,))
    for layer in sharded.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    limits = {"max_new_tokens": 7}
    own = batch_of(rows[2 * rank : 2 * rank + 2], [2 * rank, 2 * rank + 1])
    config = whole.generation_config
    config.eos_token_id = [2, 5, 26]  # ids that occur, so that rows end at different steps
    found["whole"] = collected(whole, config, [own], **limits)
    found["sharded"] = collected(sharded, config, [own], synced=True, **limits)


def trainers(folder, found):
    recorder = Recorder(own=1.0)
    metrics = counting(folder, [exact_match(), recorder], per_device_eval_batch_size=2).evaluate()
    found["exact_match"] = [metrics["eval_exact_match"], metrics["eval_generation_examples"], metrics["eval_loss"]]
    found["counted"] = recorder.seen[0].predictions.tolist()
    for name, size in (("sampled", None), ("sampled_few", 3)):
        recorder = Recorder()
        options = {"generation_max_new_tokens": 6, "generation_eval_size": size, "per_device_eval_batch_size": 2}
        counting(folder, recorder, completion_rows(), sampling_llama(), **options).evaluate()
        found[name] = recorder.seen[0].predictions.tolist()
    found["predicted"] = counting(folder, None).predict(counting_rows(ENDS[:5])).predictions.tolist()


def fails_on_one_rank(folder, found):
    def broken(prediction):
        if dist.get_rank() == 1:
            raise RuntimeError("rank 1 only")
        return {"own": 1.0}

    try:
        counting(folder, broken).evaluate()
    except RuntimeError as error:
        found[f"failed_{dist.get_rank()}"] = str(error)


if __name__ == "__main__":
    results = {}
    trainers(Path(sys.argv[1]), results)
    for case in (forward_is_a_collective, weights_are_sharded):
        case(Path(sys.argv[1]), results)
    everywhere = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, json.dumps(results))
    results["ranks_agree"] = len(set(everywhere)) == 1
    fails_on_one_rank(Path(sys.argv[1]), results)
    print("FOUND " + json.dumps(results), flush=True)
    leave()
