import gc
import itertools
from collections import Counter

import numpy as np
import psutil
import pytest
import torch
from datasets import Dataset, IterableDataset
from torch.utils.data import IterableDataset as TorchStream

from hf_trainplus.evaluation.loading import LoaderSettings, StreamLoader, WindowSizes
from tests.support.computed_rows import checked, collate
from tests.support.launch import torchrun
from tests.support.lockstep import in_lockstep

WORKERS = [0, 1]


def row_of(position, text=True):
    return {"id": position, "input_ids": torch.arange(position * 5 % 11 + 1)} if text else {"id": position}


class Stream(TorchStream):
    """Rows in a fixed order; counts how many were taken from it."""

    def __init__(self, n, text=True):
        self.n, self.text, self.taken = n, text, 0

    def __iter__(self):
        for position in range(self.n):
            self.taken += 1
            yield row_of(position, self.text)


class Endless(TorchStream):
    taken = 0

    def __iter__(self):
        while True:
            yield row_of(Endless.taken)
            Endless.taken += 1


class Split(Stream):
    """What ``split_dataset_by_node`` makes: a stream that holds this rank's rows only."""

    _distributed = "rank and world size"

    def __init__(self, n, rank, world_size):
        super().__init__(n)
        self.rank, self.world_size = rank, world_size

    def __iter__(self):
        return (row for row in super().__iter__() if row["id"] % self.world_size == self.rank)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("n", [1, 2, 11, 60])
def test_every_row_once_under_the_limit(n, workers):
    with StreamLoader(Stream(n), collate, LoaderSettings(workers)) as loader:
        for _ in range(3):
            batches = list(loader.run(WindowSizes(2, tokens_per_batch=24, window_rows=10)))
            assert sorted(checked(batches)) == list(range(n))
            assert all(batch.inputs["input_ids"].numel() <= 24 for batch in batches)


def test_an_empty_stream_has_no_batches():
    with StreamLoader(Stream(0), collate) as loader:
        assert list(loader.run(WindowSizes(2))) == []


def test_rows_are_sorted_inside_the_window_only():
    with StreamLoader(Stream(44), collate) as loader:
        batches = list(loader.run(WindowSizes(4, window_rows=20)))
    widths = [batch.inputs["input_ids"].shape[1] for batch in batches]
    assert widths[1:6] == sorted(widths[1:6], reverse=True)
    assert sorted(checked(batches[1:6])) == list(range(4, 24))


def test_rows_without_length_arrive_in_order():
    with StreamLoader(Stream(7, text=False), collate) as loader:
        assert [b.positions.tolist() for b in loader.run(WindowSizes(3))] == [[0, 1, 2], [3, 4, 5], [6]]


def test_rows_that_belong_together_keep_their_order():
    with StreamLoader(Stream(7), collate) as loader:
        sizes = WindowSizes(3, keep_order=True)
        assert [b.positions.tolist() for b in loader.run(sizes)] == [[0, 1, 2], [3, 4, 5], [6]]


def test_no_more_rows_are_held_than_the_window():
    stream, done = Stream(400), 0
    with StreamLoader(stream, collate) as loader:
        for batch in loader.run(WindowSizes(4, window_rows=32)):
            assert stream.taken - done <= 32
            done += len(batch.positions)
    assert stream.taken == done == 400


@pytest.mark.parametrize("workers", WORKERS)
def test_a_run_left_half_way_starts_anew(workers):
    with StreamLoader(Stream(30), collate, LoaderSettings(workers)) as loader:
        next(loader.run(WindowSizes(2)))
        assert sorted(checked(loader.run(WindowSizes(5)))) == list(range(30))


def test_worker_and_files_are_constant_over_evaluations():
    process, seen = psutil.Process(), set()
    gc.collect()  # what earlier tests left behind must not be let go in the middle
    before = len(process.children())
    with StreamLoader(Stream(9), collate, LoaderSettings(4)) as loader:
        for evaluation in range(12):
            assert sorted(checked(loader.run(WindowSizes(2)))) == list(range(9))
            if evaluation >= 2:
                seen.add((len(process.children()), process.num_fds()))
    # four workers would read the stream four times
    assert {children for children, _ in seen} == {before + 1}
    assert len(seen) == 1
    assert len(process.children()) == before


# limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 5, 24, 30])
def test_a_limit_counts_rows(limit):
    with StreamLoader(Stream(24), collate, limit=limit) as loader:
        assert sorted(checked(loader.run(WindowSizes(5)))) == list(range(min(limit, 24)))


def test_an_endless_stream_ends_at_its_limit():
    Endless.taken = 0
    with StreamLoader(Endless(), collate, limit=24) as loader:
        assert sorted(checked(loader.run(WindowSizes(5)))) == list(range(24))
    assert Endless.taken <= 24


@pytest.mark.parametrize(
    "stream", [Endless(), Dataset.from_dict({"id": [1]}).to_iterable_dataset().repeat(None), itertools.count()]
)
def test_an_endless_stream_without_a_limit_is_refused_before_a_row_is_read(stream):
    Endless.taken = 0
    with pytest.raises(ValueError, match=r"never ends and no limit was given.*eval_subset_size=1000"):
        StreamLoader(stream, collate)
    assert Endless.taken == 0


def test_a_limit_below_one_is_refused():
    with pytest.raises(ValueError, match=r"limit=0 was given; allowed are whole numbers of rows >= 1"):
        StreamLoader(Stream(3), collate, limit=0)


# datasets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("shards", [1, 3])
def test_streams_of_datasets_in_arrival_order(shards, workers):
    data = Dataset.from_dict({"id": list(range(20)), "input_ids": [[1] * (k % 6 + 1) for k in range(20)]})
    with StreamLoader(data.to_iterable_dataset(num_shards=shards), collate, LoaderSettings(workers)) as loader:
        for _ in range(2):
            assert sorted(checked(loader.run(WindowSizes(3, tokens_per_batch=18)))) == list(range(20))


def test_generated_stream_with_torch_format():
    stream = IterableDataset.from_generator(lambda: ({"id": k, "input_ids": [1] * (k % 4 + 1)} for k in range(11)))
    with StreamLoader(stream.with_format("torch"), collate) as loader:
        assert sorted(checked(loader.run(WindowSizes(3, tokens_per_batch=8)))) == list(range(11))


# ranks -----------------------------------------------------------------------------------------------------------


class Post:
    """Hands entry r of rank 0's list to rank r, in threads."""

    def __init__(self):
        self.box = []

    def scatter(self, rank, most, values):
        if rank == 0:
            self.box[:] = values
        most(0)
        own = self.box[rank]
        most(0)
        return own


def shares_of(way, n, world_size, sizes, limit=None, text=True):
    post = Post()

    def work(rank, most):
        stream = Split(n, rank, world_size) if way == "split" else Stream(n, text)
        options = {"rank": rank, "world_size": world_size, "limit": limit, "most": most}
        if way == "dispatched":
            options["scatter"] = lambda values: post.scatter(rank, most, values)
        with StreamLoader(stream if rank == 0 or way != "dispatched" else Unreadable(), collate, **options) as loader:
            return list(loader.run(sizes))

    return in_lockstep(work, world_size)


class Unreadable(TorchStream):
    def __iter__(self):
        raise AssertionError("only rank 0 may read a dispatched stream")
        yield


@pytest.mark.parametrize("way", ["each rank reads all", "dispatched", "split"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_every_row_in_equal_counts(way, world_size):
    for n, limit in [(3, None), (4, None), (11, None), (17, None), (40, None), (40, 13)]:
        shares = shares_of(way, n, world_size, WindowSizes(2, tokens_per_batch=20, window_rows=6), limit)
        assert len({len(share) for share in shares}) == 1, (n, limit)
        expected = Counter(range(n if limit is None else limit))
        assert Counter(row for share in shares for row in checked(share)) == expected, (n, limit)


@pytest.mark.parametrize("way", ["each rank reads all", "dispatched"])
def test_fewer_rows_than_ranks(way):
    shares = shares_of(way, 1, 3, WindowSizes(2))
    assert [len(share) for share in shares] == [1, 1, 1]
    assert [row for share in shares for row in checked(share)] == [0]


def test_unsorted_rows_keep_their_order_on_ranks():
    shares = shares_of("each rank reads all", 8, 2, WindowSizes(2), text=False)
    assert [b.positions.tolist() for b in shares[0]] == [[0, 1], [4, 5]]
    assert [b.positions.tolist() for b in shares[1]] == [[2, 3], [6, 7]]


def test_a_split_without_rows_on_a_rank_is_refused_on_all_ranks():
    def work(rank, most):
        with StreamLoader(Split(1, rank, 2), collate, rank=rank, world_size=2, most=most) as loader:
            return list(loader.run(WindowSizes(2)))

    outcomes = in_lockstep(work, 2, errors=True)
    assert all("a rank got no row; split it into at most as many parts" in str(outcome) for outcome in outcomes)


def test_a_split_stream_needs_a_way_to_agree():
    with pytest.raises(ValueError, match=r"was split between ranks and most=None was given; give most="):
        StreamLoader(Split(4, 0, 2), collate, rank=0, world_size=2)


def test_an_error_on_rank_zero_reaches_the_ranks_that_wait():
    post = Post()

    def work(rank, most):
        scatter = lambda values: post.scatter(rank, most, values)  # noqa: E731
        with StreamLoader(Broken(), collate, rank=rank, world_size=2, scatter=scatter) as loader:
            return list(loader.run(WindowSizes(2)))

    outcomes = in_lockstep(work, 2, errors=True)
    assert isinstance(outcomes[0], OSError)
    assert "rank 0 could not read the stream: OSError('the disk is gone')" in str(outcomes[1])


class Broken(TorchStream):
    def __iter__(self):
        yield from (row_of(k) for k in range(5))
        raise OSError("the disk is gone")


def test_an_unequal_window_is_measured_in_numbers_of_rows_for_all_ranks():
    """The look-ahead of two ranks that read the same rows is the same, so that they plan the same batches."""
    shares = shares_of("each rank reads all", 50, 2, WindowSizes(2, tokens_per_batch=30, window_rows=8))
    lengths = [[int(np.prod(batch.inputs["input_ids"].shape)) for batch in share] for share in shares]
    assert len(lengths[0]) == len(lengths[1])
    assert max(abs(a - b) for a, b in zip(*lengths, strict=True)) <= 30


@pytest.mark.distributed
@pytest.mark.slow
def test_two_real_processes():
    done = torchrun("tests/evaluation/two_ranks_loading.py", timeout=200)
    assert "all parts done" in done.stdout
    assert done.stdout.count(": 11 rows") == 20
    assert "Warning" not in done.stderr
