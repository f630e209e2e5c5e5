import gc
import weakref
from functools import partial

import numpy as np
import pytest
import torch
from transformers import DataCollatorWithFlattening

from hf_trainplus.evaluation.batching import plan_batches
from hf_trainplus.evaluation.loading import PlannedLoader
from hf_trainplus.evaluation.memory_backoff import BatchLimit, is_out_of_memory, run_with_backoff, split_batch
from hf_trainplus.evaluation.windows import LoadedBatch
from tests.support.lockstep import in_lockstep

# garbage collection takes half a second where torch and transformers are loaded; one test below leaves it on
backoff = partial(run_with_backoff, release=lambda: None)
CUDA = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
CPU = RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried")


class Device:
    """A device on which so many rows fit, exactly; every attempt is written down."""

    def __init__(self, fits, error=CUDA):
        self.fits, self.error = fits, error
        self.attempts = []

    def __call__(self, batch):
        self.attempts.append(len(batch.positions))
        assert batch.inputs["x"].tolist() == batch.positions.tolist()
        if len(batch.positions) > self.fits:
            raise self.error
        return batch.positions.sum()


def batches_of(*sizes):
    starts = np.cumsum([0, *sizes])
    for first, last in zip(starts[:-1], starts[1:], strict=True):
        rows = np.arange(first, last)
        yield LoadedBatch(rows, np.ones(len(rows), dtype=bool), {"x": torch.from_numpy(rows)})


def rows_of(done):
    return [int(row) for batch, _ in done for row in batch.positions[batch.real]]


@pytest.mark.parametrize("error", [CUDA, CPU, MemoryError("host")])
def test_exact_sequence_of_sizes(error):
    device, limit, releases = Device(2, error), BatchLimit(), []
    done = list(backoff(batches_of(8, 8, 5), device, limit, release=lambda: releases.append(1)))
    # 8 fails, its half fails, its quarters run; the batches after it are cut in four before they are tried
    assert device.attempts == [8, 4, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1]
    assert rows_of(done) == list(range(21))
    assert limit.halvings == 2
    assert len(releases) == 2
    assert [int(result) for _, result in done] == [int(batch.positions.sum()) for batch, _ in done]


def test_one_process_runs_no_fillers():
    device = Device(2)
    done = list(backoff(batches_of(8, 1), device, BatchLimit()))
    assert device.attempts == [8, 4, 2, 2, 2, 2, 1]
    assert rows_of(done) == list(range(9))


def test_failure_in_the_middle_keeps_what_was_done():
    device, limit = Device(3), BatchLimit()
    done = list(backoff(batches_of(3, 3, 6, 2), device, limit))
    assert device.attempts == [3, 3, 6, 3, 3, 1, 1]
    assert rows_of(done) == list(range(14))


def test_only_the_parts_not_yet_done_run_again():
    """A later part of the same batch fails: parts before it are kept, it and those after it are halved."""
    attempts, limit = [], BatchLimit()

    def step(batch):
        attempts.append(batch.positions.tolist())
        if len(batch.positions) > 4 or (len(batch.positions) > 2 and 4 in batch.positions):
            raise CUDA

    done = list(backoff(batches_of(8), step, limit))
    assert attempts == [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [6, 7]]
    assert rows_of(done) == list(range(8))
    assert limit.halvings == 2


def test_size_is_remembered_for_the_next_evaluation():
    device, limit = Device(4), BatchLimit()
    list(backoff(batches_of(16, 16), device, limit))
    assert limit.lowered(16) == 4
    device.attempts.clear()
    list(backoff(batches_of(*[limit.lowered(16)] * 8), device, limit))
    assert device.attempts == [4] * 8
    assert limit.lowered(16) == 4


def test_limit_never_falls_below_one():
    assert [BatchLimit(halvings).lowered(5) for halvings in range(5)] == [5, 2, 1, 1, 1]


def test_one_row_that_does_not_fit_is_passed_on():
    device = Device(0)
    with pytest.raises(torch.cuda.OutOfMemoryError, match=r"CUDA out of memory. Tried to allocate 20.00 MiB"):
        list(backoff(batches_of(4), device, BatchLimit()))
    assert device.attempts == [4, 2, 1]


@pytest.mark.parametrize(
    "error", [ValueError("bad label"), RuntimeError("mat1 and mat2 shapes cannot be multiplied"), KeyError("labels")]
)
def test_any_other_error_is_passed_on_at_once(error):
    device = Device(1, error)
    with pytest.raises(type(error), match=str(error.args[0])):
        list(backoff(batches_of(4), device, BatchLimit()))
    assert device.attempts == [4]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CUDA, True),
        (CPU, True),
        (MemoryError(), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED."), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
        (RuntimeError("index out of bounds"), False),
        (ValueError("CUDA out of memory."), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_is_out_of_memory(error, expected):
    assert is_out_of_memory(error) is expected


def test_a_failed_step_is_forgotten_before_the_next_try():
    """The failed step's tensors must be free when its rows run again: an error kept would keep them."""
    alive = []

    class Tensor:
        pass

    def step(batch):
        held = Tensor()
        if len(batch.positions) > 1:
            alive.append(weakref.ref(held))
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        gc.collect()
        assert all(ref() is None for ref in alive)

    assert len(list(run_with_backoff(batches_of(4), step, BatchLimit()))) == 4
    assert len(alive) == 2


def test_no_result_is_held_while_the_next_batch_runs():
    class Logits:
        pass

    last = []

    def step(batch):
        assert not last or last.pop()() is None
        logits = Logits()
        last.append(weakref.ref(logits))
        return logits

    for _, result in backoff(batches_of(1, 1, 1), step, BatchLimit()):
        del result


class PackedDevice(Device):
    def __call__(self, batch):
        self.attempts.append(len(batch.positions))
        if len(batch.positions) > self.fits:
            raise self.error
        return batch.inputs["input_ids"].shape[1]


def test_rows_laid_end_to_end_are_read_again():
    rows = [{"input_ids": [7] * k, "labels": [7] * k} for k in (1, 2, 3, 4)]
    device = PackedDevice(2)
    with PlannedLoader(rows, DataCollatorWithFlattening()) as loader:
        done = list(
            backoff(
                loader.run(plan_batches(range(4), batch_size=4)),
                device,
                BatchLimit(),
                split=lambda batch, parts: split_batch(batch, parts, fetch=loader.fetch),
            )
        )
    assert device.attempts == [4, 2, 2]
    assert [tokens for _, tokens in done] == [3, 7]


def test_rows_that_cannot_be_cut_or_read_again_are_said_to_be_so():
    batch = LoadedBatch(np.arange(2), np.ones(2, dtype=bool), {"input_ids": torch.zeros(1, 9)})
    with pytest.raises(
        torch.cuda.OutOfMemoryError, match="batch of 2 rows cannot be cut.*per_device_eval_batch_size=1"
    ):
        list(backoff([batch], PackedDevice(1), BatchLimit()))


@pytest.mark.parametrize("rows", range(1, 10))
@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_split_gives_exactly_so_many_parts_and_every_row_once(rows, parts):
    batch = next(batches_of(rows))
    pieces = split_batch(batch, parts)
    assert len(pieces) == parts
    assert rows_of([(piece, None) for piece in pieces]) == list(range(rows))
    assert all(piece.inputs["x"].tolist() == piece.positions.tolist() for piece in pieces)
    sizes = [int(piece.real.sum()) for piece in pieces]
    assert max(sizes) - min(sizes) <= 1


def test_fillers_stay_fillers():
    batch = LoadedBatch(np.array([3, 4]), np.array([True, False]), {"x": torch.tensor([3, 4])})
    assert [piece.real.tolist() for piece in split_batch(batch, 2)] == [[True], [False]]


def test_ranks_agree_and_run_equally_many_batches():
    """Rank 1 has less memory; rank 0, which had succeeded, runs its rows again in the same halves."""
    devices = [Device(100), Device(2)]
    limits = [BatchLimit(), BatchLimit()]

    def work(rank, most):
        sizes = (6, 3) if rank == 0 else (4, 1)
        agree = lambda flag: bool(most(int(flag)))  # noqa: E731
        return list(backoff(batches_of(*sizes), devices[rank], limits[rank], agree=agree))

    done = in_lockstep(work, 2)
    assert devices[1].attempts == [4, 2, 2, 1, 1]
    assert devices[0].attempts == [6, 3, 3, 2, 1]
    assert [len(part) for part in done] == [4, 4]
    assert [limit.halvings for limit in limits] == [1, 1]
    assert rows_of(done[0]) == list(range(9))
    assert rows_of(done[1]) == list(range(5))


def test_all_ranks_stop_when_one_cannot_go_on():
    devices = [Device(100), Device(0)]

    def work(rank, most):
        return list(backoff(batches_of(2), devices[rank], BatchLimit(), agree=lambda flag: bool(most(int(flag)))))

    outcomes = in_lockstep(work, 2, errors=True)
    assert isinstance(outcomes[1], torch.cuda.OutOfMemoryError)
    assert isinstance(outcomes[0], RuntimeError)
    assert "another rank ran out of memory with a single row" in str(outcomes[0])
    assert devices[0].attempts == [2, 1]
