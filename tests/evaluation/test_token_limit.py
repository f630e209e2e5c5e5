import pytest
import torch

from hf_trainplus.evaluation.token_limit import ProbeTrial, auto_tokens_per_batch


class Device:
    """Takes ``overhead`` seconds a batch and ``seconds`` a token, on a clock of its own; some sizes do not fit."""

    def __init__(self, overhead, per_token=1e-4, fits=None, bytes_per_token=None, flat_until=0):
        self.overhead, self.per_token, self.fits = overhead, per_token, fits
        self.bytes_per_token, self.flat_until = bytes_per_token, flat_until
        self.now, self.asked = 0.0, []

    def measure(self, tokens):
        self.asked.append(tokens)
        if self.fits is not None and tokens > self.fits:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        seconds = self.overhead + self.per_token * max(tokens, self.flat_until)
        self.now += seconds
        return seconds

    def memory_used(self):
        return None if self.bytes_per_token is None else self.bytes_per_token * self.asked[-1]

    def limit(self, smallest=256, largest=2**20, **options):
        options = {"max_seconds": 1e9, **options}
        return auto_tokens_per_batch(
            self.measure,
            smallest=smallest,
            largest=largest,
            memory_used=self.memory_used,
            clock=lambda: self.now,
            **options,
        )


def test_stops_where_larger_batches_gain_too_little():
    device = Device(overhead=0.01)
    limit = device.limit()
    assert device.asked == [256, 256, 512, 1024, 2048]
    assert limit.reason == "no_faster"
    # 1024 tokens run at 9,110 a second, 2048 at 9,534: 4.7 % more, which is not worth the padding
    assert limit.tokens_per_batch == 1024
    assert limit.trials[0] == ProbeTrial(256, 0.01 + 256e-4)


def test_parallel_device_is_filled():
    limit = Device(overhead=0, flat_until=16384).limit()
    assert limit.tokens_per_batch == 16384


def test_device_without_gain_keeps_the_smallest():
    device = Device(overhead=0)
    assert device.limit().tokens_per_batch == 256
    assert device.asked == [256, 256, 512]


def test_out_of_memory_leaves_the_margin():
    limit = Device(overhead=10, fits=5000).limit(memory_margin=0.2)
    assert limit.reason == "memory"
    assert limit.trials[-1] == ProbeTrial(8192, None)
    assert limit.tokens_per_batch == int(4096 * 0.8)


def test_memory_in_use_leaves_the_margin():
    limit = Device(overhead=10, bytes_per_token=1 / 10_000).limit(memory_margin=0.2)
    assert limit.reason == "memory"
    assert limit.trials[-1].tokens == 8192
    assert limit.tokens_per_batch == 4096


def test_smallest_is_kept_when_already_it_leaves_no_margin():
    assert Device(overhead=10, bytes_per_token=1 / 257).limit().tokens_per_batch == 256


def test_smallest_that_does_not_fit_is_passed_on():
    with pytest.raises(torch.cuda.OutOfMemoryError, match="CUDA out of memory"):
        Device(overhead=1, fits=100).limit()


def test_a_smallest_that_does_not_fit_is_halved_until_it_does():
    tried = []

    def measure(tokens):
        tried.append(tokens)
        if tokens > 100:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return 1.0

    limit = auto_tokens_per_batch(measure, smallest=512, largest=4096, least=30, memory_margin=0.25)
    assert (limit.tokens_per_batch, limit.reason, tried) == (48, "memory", [512, 256, 128, 64])


def test_a_single_row_that_does_not_fit_is_passed_on():
    tried = []

    def measure(tokens):
        tried.append(tokens)
        raise torch.cuda.OutOfMemoryError(f"CUDA out of memory at {tokens}.")

    with pytest.raises(torch.cuda.OutOfMemoryError, match="CUDA out of memory at 30"):
        auto_tokens_per_batch(measure, smallest=100, largest=4096, least=30)
    assert tried == [100, 50, 30]


def test_a_least_above_the_smallest_is_refused():
    with pytest.raises(ValueError, match="least=9 and smallest=8"):
        auto_tokens_per_batch(lambda tokens: 1.0, smallest=8, largest=8, least=9)


def test_any_other_error_is_passed_on():
    def measure(tokens):
        raise RuntimeError("shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        auto_tokens_per_batch(measure, smallest=1, largest=2)


def test_the_probe_takes_its_share_of_the_evaluation_at_most():
    device = Device(overhead=0.05)
    # the evaluation would take 10,000 x (0.05 + 0.0256) / 256 = 2.95 s at the first size
    limit = device.limit(total_tokens=10_000, time_share=0.12)
    assert limit.reason == "time"
    assert device.now <= 0.12 * 2.96
    assert limit.tokens_per_batch == limit.trials[-1].tokens == 512


def test_the_probe_takes_max_seconds_at_most():
    device = Device(overhead=0.05)
    assert device.limit(max_seconds=1.0).reason == "time"
    assert device.now <= 1.0


def test_largest_is_tried_last():
    device = Device(overhead=10)
    assert device.limit(largest=700).reason == "largest"
    assert device.asked == [256, 256, 512, 700]


@pytest.mark.parametrize(("smallest", "largest"), [(0, 5), (6, 5)])
def test_bad_range_is_refused(smallest, largest):
    with pytest.raises(ValueError, match=f"smallest={smallest} and largest={largest} were given; allowed is 1 <="):
        auto_tokens_per_batch(lambda tokens: 1.0, smallest=smallest, largest=largest)
