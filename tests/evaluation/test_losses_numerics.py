"""Large vocabularies in half precision, and how much memory the rows' losses take."""

import pytest
import torch
from torch.nn import functional

from hf_trainplus.evaluation.loss_kinds import cross_entropy
from hf_trainplus.evaluation.loss_kinds.cross_entropy import row_cross_entropy
from tests.support.tensor_watch import TensorWatch

CLASSES = 40_000


def logits_and_labels(rows=2, length=20, classes=CLASSES, scale=10.0):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, length, classes, generator=generator) * scale
    labels = torch.randint(0, classes, (rows, length), generator=generator)
    labels[0, 3:7] = -100
    return logits, labels


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_of_many_classes_stay_finite(dtype):
    logits, labels = logits_and_labels()
    losses = row_cross_entropy(logits.to(dtype), labels)
    reference = row_cross_entropy(logits, labels)
    assert losses.loss_sum.isfinite().all()
    means = losses.loss_sum / losses.target_count
    assert means.tolist() == pytest.approx((reference.loss_sum / reference.target_count).tolist(), rel=1e-2)


def test_a_sum_that_overflows_half_precision_stays_finite():
    logits = torch.zeros(1, 2, 100_000, dtype=torch.float16)  # 100,000 times exp(0) is above float16's 65,504
    losses = row_cross_entropy(logits, torch.zeros(1, 2, dtype=torch.long))
    assert losses.loss_sum.item() == pytest.approx(2 * 11.512925, rel=1e-6)


def test_double_precision_logits_keep_it():
    logits, labels = logits_and_labels(classes=50)
    losses = row_cross_entropy(logits.double(), labels)
    expected = functional.cross_entropy(logits.double().transpose(1, 2), labels, reduction="none").sum(1)
    assert losses.loss_sum.tolist() == pytest.approx(expected.tolist(), rel=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", ["some", "every second", "none"])
def test_no_second_copy_of_the_logits_is_made(dtype, masked):
    logits, labels = logits_and_labels(rows=4, length=64, classes=8_000)
    if masked == "none":
        labels = labels.clamp(min=0)
    elif masked == "every second":
        labels[:, ::2] = -100
    logits = logits.to(dtype)
    with TensorWatch() as watch:
        row_cross_entropy(logits, labels)
    assert 0 < watch.largest <= cross_entropy.CPU_CHUNK_ELEMENTS
    assert watch.largest < logits.numel() / 3


@pytest.mark.parametrize("limit", [1, 7, 64, 1 << 20])
def test_chunks_of_any_size_give_the_same_losses(limit, monkeypatch):
    logits, labels = logits_and_labels(rows=3, length=13, classes=7)
    expected = functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none").sum(1)
    monkeypatch.setattr(cross_entropy, "CPU_CHUNK_ELEMENTS", limit)
    assert row_cross_entropy(logits, labels).loss_sum.tolist() == pytest.approx(expected.tolist(), rel=1e-6)


def test_logits_out_of_order_in_memory():
    logits, labels = logits_and_labels(rows=3, length=13, classes=7)
    turned = logits.transpose(0, 1).contiguous().transpose(0, 1)
    assert not turned.is_contiguous()
    assert torch.equal(row_cross_entropy(turned, labels).loss_sum, row_cross_entropy(logits, labels).loss_sum)


def test_a_row_that_is_not_finite_spoils_no_other():
    logits, labels = logits_and_labels(rows=3, length=5, classes=7)
    logits[1, 2] = float("nan")
    finite = row_cross_entropy(logits, labels).loss_sum.isfinite()
    assert finite.tolist() == [True, False, True]


def test_an_empty_batch_has_no_rows():
    losses = row_cross_entropy(torch.zeros(0, 4, 7), torch.zeros(0, 4, dtype=torch.long))
    assert losses.loss_sum.shape == losses.target_count.shape == (0,)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_sums_are_double_on_a_gpu():
    logits, labels = (value.cuda() for value in logits_and_labels(classes=500))
    losses = row_cross_entropy(logits, labels)
    assert losses.loss_sum.dtype == torch.float64
    assert losses.loss_sum.tolist() == pytest.approx(row_cross_entropy(logits.cpu(), labels.cpu()).loss_sum.tolist())
