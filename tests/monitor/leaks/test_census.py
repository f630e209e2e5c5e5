import gc
import tracemalloc

import pytest
import torch

from hf_trainplus.monitor.leaks import Census, grown_sites, take_census


@pytest.fixture(autouse=True, scope="module")
def few_objects():
    """The test session's own million objects would make every census slow."""
    gc.freeze()
    yield
    gc.unfreeze()


class Kept:
    def __init__(self):
        self.other = {}


def test_tensors_are_named_by_device_type_and_shape():
    before = take_census(torch.Tensor)
    kept = [torch.zeros(16, 512) for _ in range(30)] + [torch.zeros(3, dtype=torch.int64)]
    grown = take_census(torch.Tensor).grown_since(before)
    assert grown[0].what == "cpu float32 (16, 512)"
    assert grown[0].count == 30
    assert grown[0].bytes == 30 * 16 * 512 * 4
    assert grown[0].tell() == "+30 x cpu float32 (16, 512) (0.9 MiB)"
    assert len(kept) == 31


def test_what_is_kept_of_batches_of_every_length_is_one_entry_behind_the_largest():
    before = take_census(torch.Tensor)
    kept = [torch.zeros(2, length) for length in range(1, 31) for _ in range(2)]
    grown = take_census(torch.Tensor).grown_since(before)
    assert [one.what for one in grown[:2]] == ["cpu float32 (2, 30)", "cpu float32 (2, 29)"]
    assert (grown[5].what, grown[5].count) == ("tensors of 25 other shapes", 50)
    assert sum(one.bytes or 0 for one in grown) == sum(one.nelement() * 4 for one in kept)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_without_a_shape_are_counted_all_the_same():
    before = take_census(torch.Tensor)
    lazy = torch.nn.LazyLinear(3)
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    grown = take_census(torch.Tensor).grown_since(before)
    found = {one.what: (one.count, one.bytes) for one in grown}
    assert found["cpu float32 UninitializedParameter without a shape"] == (2, 0.0)
    assert found["cpu float32 Tensor without a shape"] == (1, 0.0)
    assert lazy.weight is not None
    assert nested.is_nested


def test_other_objects_are_named_by_type():
    before = take_census()
    kept = [Kept() for _ in range(500)]
    grown = take_census().grown_since(before)
    assert ("Kept", 500) in [(one.what, one.count) for one in grown]
    assert len(kept) == 500


def test_a_few_more_of_a_type_say_nothing():
    assert Census().grown_since(Census()) == []
    objects = [Kept() for _ in range(7)]
    assert take_census(objects=objects).grown_since(Census()) == []


def test_a_lazy_object_is_not_woken_up():
    class Trap:
        @property
        def __class__(self):
            raise AssertionError("somebody asked")

    assert take_census(torch.Tensor, objects=[Trap()]).types["test_a_lazy_object_is_not_woken_up.<locals>.Trap"] == 1


def test_allocation_sites_are_named_by_line():
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot()
        kept = [bytes(10_000) for _ in range(100)]
        (first, *_) = grown_sites(before, tracemalloc.take_snapshot())
    finally:
        tracemalloc.stop()
    assert "test_census.py:" in first.what
    assert first.bytes >= 1_000_000
    assert len(kept) == 100
