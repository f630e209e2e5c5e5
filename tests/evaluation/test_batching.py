import itertools
from collections import Counter

import numpy as np
import pytest

from hf_trainplus.evaluation.batching import plan_batches

SHARES = list(itertools.product(range(1, 18), range(1, 6), (1, 2)))


def lengths_of(n, seed=0):
    return np.random.default_rng(seed + n).geometric(0.08, n)


def plans(ids, lengths=None, *, world_size, **options):
    return [plan_batches(ids, lengths, rank=rank, world_size=world_size, **options) for rank in range(world_size)]


def real_ids(shares):
    return [
        int(row) for plan in shares for batch, real in zip(plan.batches, plan.real, strict=True) for row in batch[real]
    ]


def all_batches(shares):
    return [(batch, real) for plan in shares for batch, real in zip(plan.batches, plan.real, strict=True)]


@pytest.mark.parametrize("mode", ["plain", "sorted", "tokens"])
def test_every_row_once_and_equal_counts_for_small_sizes(mode):
    for n, batch_size, world_size in SHARES:
        ids = np.arange(100, 100 + n)
        lengths = None if mode == "plain" else lengths_of(n)
        tokens = 40 if mode == "tokens" else None
        shares = plans(ids, lengths, batch_size=batch_size, tokens_per_batch=tokens, world_size=world_size)
        assert Counter(real_ids(shares)) == Counter(ids.tolist()), (n, batch_size, world_size)
        assert len({len(plan) for plan in shares}) == 1, (n, batch_size, world_size)
        assert sum(plan.row_count for plan in shares) == n
        for batch, real in all_batches(shares):
            assert batch.dtype == np.int64
            assert real.dtype == np.bool_
            assert batch.shape == real.shape
            assert len(batch) >= 1
            assert set(batch.tolist()) <= set(ids.tolist())


@pytest.mark.parametrize("mode", ["plain", "sorted"])
def test_a_batch_has_at_most_batch_size_rows(mode):
    for n, batch_size, world_size in SHARES:
        lengths = None if mode == "plain" else lengths_of(n)
        shares = plans(np.arange(n), lengths, batch_size=batch_size, world_size=world_size)
        assert max(len(batch) for batch, _ in all_batches(shares)) <= batch_size


@pytest.mark.parametrize("seed", range(40))
def test_token_limit_holds_and_is_used_well(seed):
    rng = np.random.default_rng(seed)
    n, limit, world_size = int(rng.integers(1, 400)), int(rng.integers(20, 600)), int(rng.integers(1, 5))
    lengths = rng.integers(0, 200, n)
    shares = plans(np.arange(n), lengths, batch_size=1, tokens_per_batch=limit, world_size=world_size)
    for batch, _ in all_batches(shares):
        assert len(batch) * lengths[batch].max() <= limit or len(batch) == 1
    single = plan_batches(np.arange(n), lengths, batch_size=1, tokens_per_batch=limit)
    for batch, following in itertools.pairwise(single.batches):
        # the next row in the sorted order would not have fitted into the batch before it
        assert (len(batch) + 1) * max(1, lengths[batch].max()) > limit, (batch, following)


def test_longest_rows_come_first_on_every_rank():
    lengths = lengths_of(300)
    for plan in plans(np.arange(300), lengths, batch_size=8, tokens_per_batch=128, world_size=3):
        longest = [lengths[batch].max() for batch in plan.batches]
        assert longest == sorted(longest, reverse=True)
    whole = plan_batches(np.arange(300), lengths, batch_size=8)
    assert lengths[whole.batches[0][0]] == lengths.max()


def test_padding_is_less_than_in_given_order():
    lengths = lengths_of(500)
    padded = {
        name: sum(len(batch) * int(lengths[batch].max()) for batch in plan.batches)
        for name, plan in {
            "plain": plan_batches(np.arange(500), batch_size=16),
            "sorted": plan_batches(np.arange(500), lengths, batch_size=16),
        }.items()
    }
    assert padded["sorted"] < 1.15 * lengths.sum()
    assert padded["plain"] > 2 * lengths.sum()


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_ranks_get_level_work(world_size):
    lengths = lengths_of(1000)
    shares = plans(np.arange(1000), lengths, batch_size=8, tokens_per_batch=256, world_size=world_size)
    work = [sum(len(batch) * int(lengths[batch].max()) for batch in plan.batches) for plan in shares]
    assert max(work) - min(work) <= 256
    assert all(real.all() for _, real in all_batches(shares))


def test_batches_are_halved_rather_than_fillers_added():
    shares = plans(np.arange(6), [9, 8, 7, 6, 5, 4], batch_size=6, world_size=4)
    assert [len(plan) for plan in shares] == [1, 1, 1, 1]
    assert all(real.all() for _, real in all_batches(shares))
    assert sorted(real_ids(shares)) == list(range(6))


def test_fewer_rows_than_ranks_gives_fillers():
    shares = plans([5, 7], [3, 2], batch_size=4, world_size=4)
    assert [plan.row_count for plan in shares] == [1, 1, 0, 0]
    assert shares[3].batches[0].tolist() == [7]  # the shortest row is the cheapest filler
    assert shares[3].real[0].tolist() == [False]


def test_plain_batches_keep_order_and_composition():
    shares = plans([9, 4, 6, 2, 8], batch_size=2, world_size=2)
    assert [batch.tolist() for batch in shares[0].batches] == [[9, 4], [8]]
    assert [batch.tolist() for batch in shares[1].batches] == [[6, 2], [8]]
    assert [real.tolist() for real in shares[1].real] == [[True, True], [False]]


def test_without_lengths_a_token_limit_changes_nothing():
    limited = plan_batches(np.arange(7), batch_size=3, tokens_per_batch=1)
    assert [batch.tolist() for batch in limited.batches] == [[0, 1, 2], [3, 4, 5], [6]]


def test_max_rows_bounds_short_rows():
    plan = plan_batches(np.arange(100), np.ones(100), batch_size=4, tokens_per_batch=1000, max_rows=32)
    assert [len(batch) for batch in plan.batches] == [32, 32, 32, 4]


def test_rows_of_no_length_still_run():
    plan = plan_batches(np.arange(5), np.zeros(5), batch_size=2, tokens_per_batch=3)
    assert [batch.tolist() for batch in plan.batches] == [[0, 1, 2], [3, 4]]


def test_repeated_ids_stay_repeated():
    shares = plans([3, 3, 1], [2, 2, 5], batch_size=2, world_size=2)
    assert Counter(real_ids(shares)) == Counter({3: 2, 1: 1})


def test_the_plan_is_a_function_of_its_arguments():
    lengths = np.full(50, 7)
    first, again = (plan_batches(np.arange(50), lengths, batch_size=4, rank=1, world_size=2) for _ in range(2))
    assert [batch.tolist() for batch in first.batches] == [batch.tolist() for batch in again.batches]
    # rows of equal length keep the order of their positions
    assert plan_batches([3, 1, 2], [7, 7, 7], batch_size=3).batches[0].tolist() == [1, 2, 3]


def test_no_rows_give_no_batches_on_any_rank():
    assert [len(plan) for plan in plans([], batch_size=3, world_size=2)] == [0, 0]
    assert [len(plan) for plan in plans([], [], batch_size=3, world_size=2)] == [0, 0]


def test_a_million_rows_are_planned_in_seconds():
    rng = np.random.default_rng(0)
    plan = plan_batches(
        np.arange(1_000_000), rng.integers(1, 512, 1_000_000), batch_size=8, tokens_per_batch=8192, world_size=2, rank=1
    )
    assert 490_000 < plan.row_count < 510_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, r"batch_size=0 was given; allowed are whole numbers >= 1"),
        ({"batch_size": 2, "tokens_per_batch": 0}, r"tokens_per_batch=0 was given"),
        ({"batch_size": 2, "max_rows": -1}, r"max_rows=-1 was given"),
        ({"batch_size": 2, "world_size": 0}, r"world_size=0 was given"),
        ({"batch_size": 2, "rank": 2, "world_size": 2}, r"rank=2 was given with world_size=2; allowed are 0 to 1"),
        ({"batch_size": 2, "rank": -1}, r"rank=-1 was given"),
        ({"batch_size": 2, "lengths": [1, 2]}, r"lengths have shape \(2,\) and ids \(3,\).*lengths\[ids\]"),
        ({"batch_size": 2, "lengths": [1, -2, 3]}, r"lengths contain -2; allowed are values >= 0"),
        ({"batch_size": 2, "ids": [[1, 2]]}, r"ids have shape \(1, 2\); allowed is one dimension"),
    ],
)
def test_bad_input_is_refused(options, message):
    arguments = {"ids": [0, 1, 2], **options}
    with pytest.raises(ValueError, match=message):
        plan_batches(arguments.pop("ids"), arguments.pop("lengths", None), **arguments)


@pytest.mark.parametrize("mode", ["plain", "sorted", "tokens"])
def test_ranks_run_equally_many_rows_a_round_where_that_is_asked_for(mode):
    for n, batch_size, world_size in itertools.product(range(1, 18), range(1, 6), (1, 2, 3)):
        lengths = None if mode == "plain" else lengths_of(n)
        tokens = 40 if mode == "tokens" else None
        options = {"batch_size": batch_size, "tokens_per_batch": tokens, "even_rows": True}
        shares = plans(np.arange(n), lengths, world_size=world_size, **options)
        assert Counter(real_ids(shares)) == Counter(range(n)), (n, batch_size, world_size)
        sizes = [tuple(len(batch) for batch in plan.batches) for plan in shares]
        assert len(set(sizes)) == 1, (n, batch_size, world_size)
        assert all(real.all() or not real.any() for _, real in all_batches(shares))
        if mode == "tokens":
            assert all(len(batch) == 1 or len(batch) * lengths[batch].max() <= 40 for batch, _ in all_batches(shares))
        else:
            assert max(map(max, sizes)) <= batch_size


def test_even_rounds_keep_the_batches_of_one_rank_and_repeat_the_last_of_a_round():
    shares = plans(range(11), batch_size=4, world_size=2, even_rows=True)
    assert [[batch.tolist() for batch in plan.batches] for plan in shares] == [
        [[0, 1, 2, 3], [8, 9, 10]],
        [[4, 5, 6, 7], [8, 9, 10]],
    ]
    assert [[real.all() for real in plan.real] for plan in shares] == [[True, True], [True, False]]
    short_apart = plans(range(7), batch_size=4, world_size=2, even_rows=True)
    assert [[batch.tolist() for batch in plan.batches] for plan in short_apart] == [[[0, 1, 2, 3], [4, 5, 6]]] * 2
    assert [[real.all() for real in plan.real] for plan in short_apart] == [[True, True], [False, False]]


def test_even_rounds_of_sorted_rows_leave_at_most_a_batch_a_rank_to_repeat():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 60, 500)
    shares = plans(np.arange(500), lengths, batch_size=8, tokens_per_batch=256, world_size=4, even_rows=True)
    assert sum(int((~real).sum()) for _, real in all_batches(shares)) < 4
    padded = sum(len(batch) * int(lengths[batch].max()) for batch, _ in all_batches(shares))
    assert padded < 1.2 * lengths.sum()
