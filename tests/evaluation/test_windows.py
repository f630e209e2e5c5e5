from collections import Counter

import pytest
import torch

from hf_trainplus.evaluation.loading import LoaderSettings, PlannedLoader, WindowSizes
from tests.support.computed_rows import Slow, checked, collate
from tests.support.lockstep import in_lockstep

WORKERS = [0, 2]


@pytest.mark.parametrize("workers", WORKERS)
def test_windows_give_every_row_once_under_the_limit(workers):
    with PlannedLoader(Slow(101), collate, LoaderSettings(workers)) as loader:
        sizes = WindowSizes(5, tokens_per_batch=30, window_rows=25)
        batches = list(loader.run_windows(range(101), sizes))
    assert sorted(checked(batches)) == list(range(101))
    assert all(batch.inputs["input_ids"].numel() <= 30 for batch in batches)
    padded = sum(batch.inputs["input_ids"].numel() for batch in batches)
    assert padded < 1.2 * sum(k * 7 % 13 + 1 for k in range(101))


def test_a_window_reads_each_row_once_and_holds_no_more_than_it_may():
    dataset = Slow(500)
    with PlannedLoader(dataset, collate) as loader:
        ahead = 0
        for done, batch in enumerate(loader.run_windows(range(500), WindowSizes(4, window_rows=64)), start=1):
            ahead = max(ahead, sum(dataset.reads.values()) - 4 * (done - 1))
            assert len(batch.positions) <= 4
    assert set(dataset.reads.values()) == {1}
    assert len(dataset.reads) == 500
    assert ahead <= 64 + 4


def test_large_rows_shorten_the_window():
    dataset = Slow(300)
    row_bytes = 13 * 8 + 8
    with PlannedLoader(dataset, collate) as loader:
        batches = loader.run_windows(range(300), WindowSizes(4, window_bytes=10 * row_bytes))
        for _ in range(3):
            next(batches)
    assert sum(dataset.reads.values()) <= 4 + 2 * 11


@pytest.mark.parametrize("workers", WORKERS)
def test_rows_without_length_stay_in_plain_batches(workers):
    dataset = Slow(23, text=False)
    with PlannedLoader(dataset, collate, LoaderSettings(workers)) as loader:
        batches = list(loader.run_windows(range(23), WindowSizes(4, tokens_per_batch=9)))
    assert [batch.positions.tolist() for batch in batches] == [list(range(k, min(k + 4, 23))) for k in range(0, 23, 4)]
    if not workers:
        assert set(dataset.reads.values()) == {1}


def test_rows_that_belong_together_keep_their_batches():
    with PlannedLoader(Slow(23), collate) as loader:
        batches = list(loader.run_windows(range(23), WindowSizes(4, keep_order=True)))
    assert [batch.positions.tolist() for batch in batches] == [list(range(k, min(k + 4, 23))) for k in range(0, 23, 4)]


def test_two_evaluations_make_the_same_batches():
    with PlannedLoader(Slow(90), collate) as loader:
        runs = [[b.positions.tolist() for b in loader.run_windows(range(90), WindowSizes(4, 30))] for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("text", [True, False])
def test_windows_of_ranks_have_equal_counts(text):
    for n in (1, 2, 3, 7, 11, 40):

        def work(rank, most, n=n):
            with PlannedLoader(Slow(n, text), collate) as loader:
                sizes = WindowSizes(2, tokens_per_batch=20, window_rows=6)
                return list(loader.run_windows(range(n), sizes, rank=rank, world_size=3, most=most))

        shares = in_lockstep(work, 3)
        assert len({len(share) for share in shares}) == 1, n
        assert Counter(row for share in shares for row in checked(share)) == Counter(range(n))


class OddFirst(Slow):
    """The first rows differ between the ranks: some without a length, some very large."""

    def __init__(self, n, odd):
        super().__init__(n)
        self.odd = odd

    def __getitem__(self, position):
        row = super().__getitem__(position)
        if position in (2, 3):
            return {"id": row["id"]} if self.odd == "without length" else {**row, "weights": torch.zeros(1000)}
        return row


@pytest.mark.parametrize("odd", ["without length", "large"])
def test_ranks_look_equally_far_ahead_whatever_their_own_first_rows(odd):
    def work(rank, most):
        with PlannedLoader(OddFirst(60, odd), collate) as loader:
            sizes = WindowSizes(2, window_rows=24, window_bytes=20_000)
            return list(loader.run_windows(range(60), sizes, rank=rank, world_size=2, most=most))

    shares = in_lockstep(work, 2)
    assert len(shares[0]) == len(shares[1])
    assert Counter(row for share in shares for row in checked(share)) == Counter(range(60))


def test_ranks_need_a_way_to_agree():
    with (
        PlannedLoader(Slow(4), collate) as loader,
        pytest.raises(ValueError, match=r"world_size=2 and most=None; give most="),
    ):
        next(loader.run_windows(range(4), WindowSizes(2), world_size=2))


def test_fillers_of_a_window_may_be_taken_apart():
    """A trainer pops labels out of a batch; the filler that comes after must still have them."""

    def work(rank, most):
        with PlannedLoader(Uneven(16), collate) as loader:
            sizes = WindowSizes(1, tokens_per_batch=64, window_rows=8)
            return [
                batch.inputs.pop("id").tolist()
                for batch in loader.run_windows(range(16), sizes, rank=rank, world_size=2, most=most)
            ]

    shares = in_lockstep(work, 2)
    assert len(shares[0]) == len(shares[1])


class Uneven(Slow):
    def __getitem__(self, position):
        return {"id": position, "input_ids": torch.zeros(64 if position < 9 else 1)}


@pytest.mark.parametrize("name", ["batch_size", "tokens_per_batch", "max_rows", "window_rows", "window_bytes"])
def test_sizes_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name}=0 was given; allowed are whole numbers >= 1"):
        WindowSizes(**{"batch_size": 1, name: 0})
