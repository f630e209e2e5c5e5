import gc
import os
import random

import numpy as np
import psutil
import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    DataCollatorForTokenClassification,
    DataCollatorWithFlattening,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
)

from hf_trainplus.evaluation.batching import plan_batches
from hf_trainplus.evaluation.lengths import row_lengths
from hf_trainplus.evaluation.loading import LoaderSettings, PlannedLoader, WindowSizes
from hf_trainplus.evaluation.packing import example_of_token, rows_in_batch
from tests.support.computed_rows import Slow, checked, collate

WORKERS = [0, 2]


class Batched(Slow):
    def __init__(self, n):
        super().__init__(n)
        self.calls = []

    def __getitems__(self, positions):
        self.calls.append(positions)
        return [super(Batched, self).__getitem__(position) for position in positions]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_plan_is_read_in_its_order(workers):
    order = np.random.default_rng(0).permutation(40)
    plan = plan_batches(order, batch_size=6)
    with PlannedLoader(Slow(40), collate, LoaderSettings(workers)) as loader:
        assert checked(loader.run(plan)) == order.tolist()
        assert checked(loader.run(plan_batches([3, 3, 1], batch_size=2))) == [3, 3, 1]
        assert checked(loader.run(plan_batches([], batch_size=2))) == []


def test_rows_are_read_once_and_in_batches_where_the_dataset_can():
    dataset = Batched(10)
    with PlannedLoader(dataset, collate) as loader:
        checked(loader.run(plan_batches(range(10), batch_size=4)))
    assert dataset.calls == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert set(dataset.reads.values()) == {1}


def test_fillers_are_marked():
    with PlannedLoader(Slow(3), collate) as loader:
        (batch,) = loader.run(plan_batches(range(3), batch_size=3, rank=1, world_size=2))
    assert batch.positions.tolist() == [2]
    assert batch.real.tolist() == [False]
    assert batch.inputs["id"].tolist() == [2]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_run_left_half_way_does_not_touch_the_next(workers):
    with PlannedLoader(Slow(30), collate, LoaderSettings(workers)) as loader:
        first = loader.run(plan_batches(range(30), batch_size=2))
        assert next(first).positions.tolist() == [0, 1]
        assert checked(loader.run(plan_batches(range(29, -1, -1), batch_size=4))) == list(range(29, -1, -1))
        with pytest.raises(RuntimeError, match="A newer run of this loader has begun"):
            next(first)


@pytest.mark.parametrize("workers", WORKERS)
def test_an_error_in_a_row_is_passed_on_and_the_loader_lives(workers):
    with PlannedLoader(Slow(9), refuse_seven, LoaderSettings(workers)) as loader:
        for _ in range(2):
            with pytest.raises(ValueError, match="row 7 is broken"):
                list(loader.run(plan_batches(range(9), batch_size=2)))
            assert checked(loader.run(plan_batches(range(6), batch_size=2))) == list(range(6))


def refuse_seven(rows):
    if any(row["id"] == 7 for row in rows):
        raise ValueError("row 7 is broken")
    return collate(rows)


def test_a_closed_loader_says_so():
    loader = PlannedLoader(Slow(4), collate, LoaderSettings(1))
    batches = loader.run(plan_batches(range(4), batch_size=1))
    next(batches)
    loader.close()
    loader.close()
    with pytest.raises(RuntimeError, match="This loader was closed; make a new one"):
        next(loader.run(plan_batches(range(4), batch_size=2)))


def test_workers_and_files_are_constant_over_fifty_evaluations():
    process = psutil.Process()
    gc.collect()  # what earlier tests left behind must not be let go in the middle
    children, files = len(process.children()), process.num_fds()
    seen = set()
    with PlannedLoader(Slow(12), collate, LoaderSettings(2)) as loader:
        plan = plan_batches(range(12), batch_size=3)
        for evaluation in range(50):
            batches = loader.run(plan)
            if evaluation % 7 == 3:
                next(batches)  # left half-way
                del batches
            else:
                assert checked(batches) == list(range(12))
            if evaluation >= 2 and evaluation % 7 != 3:
                seen.add(
                    (frozenset(child.pid for child in process.children()), process.num_fds(), process.num_threads())
                )
    assert len(seen) == 1, seen
    assert len(next(iter(seen))[0]) == children + 2
    del batches
    gc.collect()
    assert (len(process.children()), process.num_fds()) == (children, files)


def test_without_workers_no_process_and_no_file_is_opened():
    process = psutil.Process()
    before = (len(process.children()), process.num_fds())
    with PlannedLoader(Slow(12), collate) as loader:
        for _ in range(3):
            checked(loader.run(plan_batches(range(12), batch_size=3)))
        assert (len(process.children()), process.num_fds()) == before


@pytest.mark.parametrize("workers", WORKERS)
def test_no_random_state_is_moved(workers):
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()
    with PlannedLoader(Slow(12), collate, LoaderSettings(workers)) as loader:
        for _ in range(2):
            checked(loader.run(plan_batches(range(12), batch_size=3)))
            checked(loader.run_windows(range(12), WindowSizes(3)))
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()) == states


def test_pinning_without_an_accelerator_is_quiet():
    with PlannedLoader(Slow(4), collate, LoaderSettings(1, pin_memory=True, prefetch_factor=3)) as loader:
        assert checked(loader.run(plan_batches(range(4), batch_size=2))) == [0, 1, 2, 3]


@pytest.mark.slow
def test_spawned_workers():
    settings = LoaderSettings(1, multiprocessing_context="spawn")
    with PlannedLoader(Slow(4), collate, settings) as loader:
        for _ in range(2):
            assert checked(loader.run(plan_batches(range(4), batch_size=2))) == [0, 1, 2, 3]


# collators -------------------------------------------------------------------------------------------------------


def tokenizer():
    vocabulary = {"[PAD]": 0, "[MASK]": 1, **{str(k): k for k in range(2, 40)}}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="[PAD]")),
        pad_token="[PAD]",
        mask_token="[MASK]",
    )


def text_rows(n=37, **columns):
    lengths = np.random.default_rng(0).integers(1, 20, n)
    rows = {"input_ids": [[k % 38 + 2] * int(size) for k, size in enumerate(lengths)]}
    rows |= {name: [value(k, int(size)) for k, size in enumerate(lengths)] for name, value in columns.items()}
    return Dataset.from_dict(rows)


COLLATORS = {
    "padding": (DataCollatorWithPadding, {"label": lambda k, size: k}),
    "token classification": (DataCollatorForTokenClassification, {"labels": lambda k, size: [k] * size}),
    "sequence to sequence": (DataCollatorForSeq2Seq, {"labels": lambda k, size: [k % 38 + 2] * (k % 5 + 1)}),
    "language model": (lambda tok: DataCollatorForLanguageModeling(tok, mlm=False), {}),
}


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", COLLATORS)
def test_collators_get_sorted_rows_under_the_limit(name, workers):
    kind, columns = COLLATORS[name]
    dataset = text_rows(**columns)
    lengths = row_lengths(dataset)
    plan = plan_batches(np.arange(37), lengths, batch_size=8, tokens_per_batch=60)
    seen = []
    with PlannedLoader(dataset, kind(tokenizer()), LoaderSettings(workers)) as loader:
        for batch in loader.run(plan):
            assert rows_in_batch(batch.inputs, len(batch.positions)) == len(batch.positions)
            assert batch.inputs["input_ids"].numel() <= 60 or len(batch.positions) == 1
            assert (batch.inputs["input_ids"][:, 0] - 2).tolist() == [row % 38 for row in batch.positions]
            seen += batch.positions.tolist()
    assert sorted(seen) == list(range(37))
    assert lengths[seen[0]] == lengths.max()


def test_padding_free_collator_under_the_limit():
    dataset = text_rows()
    plan = plan_batches(np.arange(37), row_lengths(dataset), batch_size=8, tokens_per_batch=60)
    with PlannedLoader(dataset, DataCollatorWithFlattening()) as loader:
        for batch in loader.run(plan):
            n = len(batch.positions)
            assert rows_in_batch(batch.inputs, n) == 1
            assert batch.inputs["input_ids"].shape[1] <= 60
            owner = example_of_token(batch.inputs, n)
            assert [int(batch.inputs["input_ids"][0, owner == k][0]) - 2 for k in range(n)] == [
                row % 38 for row in batch.positions
            ]


def test_rows_of_a_failed_batch_can_be_read_again():
    with PlannedLoader(Slow(9), collate, LoaderSettings(1)) as loader:
        batches = loader.run(plan_batches(range(9), batch_size=4))
        first = next(batches)
        assert loader.fetch(first.positions[:2])["id"].tolist() == [0, 1]
        assert checked(batches) == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("order", [range(10), [9, 2, 7]])
def test_rows_that_are_held_are_not_read_by_the_next_run(order):
    dataset = Batched(10)
    with PlannedLoader(dataset, collate) as loader:
        for rows in ([2, 5], [2, 5, 7]):
            assert loader.fetch(np.array(rows), hold=True)["id"].tolist() == rows
        assert checked(loader.run(plan_batches(order, batch_size=4))) == list(order)
        held, run = dataset.calls[:2], dataset.calls[2:]
        assert held == [[2, 5], [7]]
        assert sorted(row for call in run for row in call) == sorted(set(order) - {2, 5, 7})
        dataset.calls.clear()
        checked(loader.run(plan_batches(order, batch_size=4)))
    assert sorted(row for call in dataset.calls for row in call) == sorted(order)  # held for one run only


def test_workers_run_elsewhere():
    with PlannedLoader(ProcessIds(), list, LoaderSettings(2)) as loader:
        pids = {pid for batch in loader.run(plan_batches(range(20), batch_size=1)) for pid in batch.inputs}
    assert len(pids) == 2
    assert os.getpid() not in pids


class ProcessIds:
    def __getitem__(self, position):
        return os.getpid()
