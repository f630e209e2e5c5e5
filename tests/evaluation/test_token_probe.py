import numpy as np
import pytest
import torch

from hf_trainplus.evaluation.token_probe import TokenLimitProbe, device_memory_used, probe_token_limit

LENGTHS = np.random.default_rng(0).integers(1, 200, 20_000)


class Machine:
    """Runs batches in a known time, on a clock of its own."""

    def __init__(self, overhead=0.0, per_token=1e-5, lengths=LENGTHS):
        self.overhead, self.per_token, self.lengths = overhead, per_token, lengths
        self.now, self.batches = 0.0, []

    def run(self, rows):
        self.batches.append(len(rows) * int(self.lengths[rows].max()))
        self.now += self.overhead + self.per_token * self.batches[-1]

    def limit(self, device="cpu"):
        return probe_token_limit(self.lengths, self.run, torch.device(device), clock=lambda: self.now)


def test_a_core_that_is_busy_already_keeps_small_batches():
    assert Machine().limit().tokens_per_batch == 512


def test_cost_of_a_batch_is_spread_over_larger_ones():
    assert Machine(overhead=0.05).limit().tokens_per_batch > 4096


def test_an_accelerator_starts_larger(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (90, 100))
    machine = Machine()
    assert machine.limit("cuda").tokens_per_batch == 4096
    assert min(machine.batches) > 3800


def test_an_accelerator_that_is_nearly_full_is_not_filled(monkeypatch):
    machine = Machine(overhead=0.1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100 - machine.batches[-1] / 400, 100))
    limit = machine.limit("cuda")
    assert limit.reason == "memory"
    assert limit.tokens_per_batch <= 32_000  # a fifth stays free


def test_few_rows_are_run_as_they_are():
    limit = Machine(lengths=np.array([3, 9, 5])).limit()
    assert limit.tokens_per_batch == 17
    assert limit.reason == "largest"


def test_memory_in_use(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (25, 100))
    assert device_memory_used(torch.device("cuda")) == 0.75
    assert device_memory_used(torch.device("cpu")) is None


def test_probe_runs_rows_where_most_tokens_lie():
    lengths = np.array([1] * 50 + [100] * 40 + [900])
    ran = []
    ticks = iter(range(100))
    probe = TokenLimitProbe(lengths, ran.append, clock=lambda: float(next(ticks)))
    assert probe.total_tokens == 50 + 4000 + 900
    assert probe.measure(500) == pytest.approx(1.0)
    assert lengths[ran[0]].tolist() == [100] * 5
    # 730 tokens do not divide by the rows: 700 ran, the time is scaled to 730
    assert probe.measure(730) == pytest.approx(730 / 700)


def test_probe_of_few_rows_takes_all_of_them():
    ran = []
    TokenLimitProbe(np.array([3, 9, 5]), ran.append).measure(10_000)
    assert sorted(ran[0].tolist()) == [0, 1, 2]


def test_probe_without_rows_is_refused():
    with pytest.raises(ValueError, match="the probe was given no rows"):
        TokenLimitProbe(np.array([], dtype=np.int64), print)


def test_a_first_batch_that_does_not_fit_is_cut_down_to_one_row():
    lengths, ran = np.array([40, 30, 30, 20]), []

    def run(rows):
        ran.append(len(rows))
        if len(rows) > 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    assert probe_token_limit(lengths, run, torch.device("cpu")).reason == "memory"
    assert ran == [4, 2, 1]


def test_one_row_that_does_not_fit_is_passed_on():
    def run(rows):
        raise torch.cuda.OutOfMemoryError(f"CUDA out of memory with {len(rows)} rows.")

    with pytest.raises(torch.cuda.OutOfMemoryError, match="with 1 rows"):
        probe_token_limit(np.array([40, 30, 30, 20]), run, torch.device("cpu"))
