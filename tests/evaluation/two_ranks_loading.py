"""Run by torchrun in two processes: windows, streams and backoff give every row once and equal counts."""

import sys
from collections import Counter

import torch
import torch.distributed as dist
from datasets import Dataset
from datasets.distributed import split_dataset_by_node

from hf_trainplus.evaluation.batching import plan_batches
from hf_trainplus.evaluation.loading import LoaderSettings, PlannedLoader, StreamLoader, WindowSizes
from hf_trainplus.evaluation.memory_backoff import BatchLimit, run_with_backoff
from tests.evaluation.test_streaming import Stream
from tests.support.computed_rows import Slow, checked, collate
from tests.support.launch import leave

SIZES = WindowSizes(2, tokens_per_batch=24, window_rows=6)


def most(value):
    largest = torch.tensor([value])
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return int(largest)


def scatter(values):
    box = [None]
    dist.scatter_object_list(box, values, src=0)
    return box[0]


def check(name, batches, n):
    counts = [None] * dist.get_world_size()
    shares = [None] * dist.get_world_size()
    batches = list(batches)
    dist.all_gather_object(counts, len(batches))
    dist.all_gather_object(shares, checked(batches))
    assert len(set(counts)) == 1, (name, counts)
    assert Counter(sum(shares, [])) == Counter(range(n)), (name, shares)
    if dist.get_rank() == 0:
        print(f"{name}: {n} rows, {counts} batches", flush=True)


def streams(rank, world_size):
    ranks = {"rank": rank, "world_size": world_size}
    table = Dataset.from_dict({"id": list(range(11)), "input_ids": [[1] * (k % 6 + 1) for k in range(11)]})
    ways = {
        "each rank reads all": (Stream(11), {}),
        "dispatched": (Stream(11), {"scatter": scatter}),
        "split before": (split_dataset_by_node(table.to_iterable_dataset(2), rank, world_size), {"most": most}),
        "datasets dispatched": (table.to_iterable_dataset(3), {"scatter": scatter}),
        "limited": (Stream(50), {"limit": 11}),
    }
    for workers in (0, 1):
        for name, (stream, options) in ways.items():
            with StreamLoader(stream, collate, LoaderSettings(workers), **ranks, **options) as loader:
                for _ in range(2):
                    batches = list(loader.run(SIZES))
                    if name == "split before":  # rows keep their own numbers, positions are dealt k * world_size + r
                        batches = [b._replace(positions=b.inputs["id"].numpy()) for b in batches]
                    check(f"{name}, workers {workers}", batches, 11)


def windows(rank, world_size):
    for n in (1, 5, 23):
        with PlannedLoader(Slow(n), collate, LoaderSettings(1)) as loader:
            check("windows", loader.run_windows(range(n), SIZES, rank=rank, world_size=world_size, most=most), n)


def backoff(rank, world_size):
    """Rank 1 has room for one row only."""

    def step(batch):
        dist.all_reduce(torch.ones(1))  # fails or hangs if ranks ran unequal counts
        if rank == 1 and len(batch.positions) > 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    limit = BatchLimit()
    with PlannedLoader(Slow(13), collate) as loader:
        plan = plan_batches(range(13), batch_size=4, rank=rank, world_size=world_size)
        done = run_with_backoff(loader.run(plan), step, limit, agree=lambda flag: bool(most(int(flag))))
        check("backoff", [batch for batch, _ in done], 13)
    assert limit.halvings == 2


def main():
    dist.init_process_group("gloo")
    for part in (streams, windows, backoff):
        part(dist.get_rank(), dist.get_world_size())
    if dist.get_rank() == 0:
        print("all parts done")
    leave()


if __name__ == "__main__":
    sys.exit(main())
