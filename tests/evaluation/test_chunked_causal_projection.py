"""Scores of tiles against torch's own cross entropy and argmax."""

import pytest
import torch
from torch.nn import functional
from transformers import Gemma2Config, GraniteConfig, LlamaConfig

from hf_trainplus.evaluation.loss_kinds.output_head import LogitTransform, candidate_transforms
from hf_trainplus.evaluation.loss_kinds.projected_cross_entropy import projected_cross_entropy

WIDTH = 8


def parts(tokens=23, vocabulary=37, dtype=torch.float32, scale=3.0):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, WIDTH, generator=generator).to(dtype)
    weight = (torch.randn(vocabulary, WIDTH, generator=generator) * scale).to(dtype)
    bias = torch.randn(vocabulary, generator=generator).to(dtype)
    targets = torch.randint(0, vocabulary, (tokens,), generator=generator)
    return hidden, weight, bias, targets


def check(hidden, weight, bias, targets, *, logits=None, smoothing=0.0, **options):
    scores = projected_cross_entropy(hidden, weight, bias, targets, label_smoothing=smoothing, **options)
    logits = functional.linear(hidden, weight, bias).float() if logits is None else logits
    expected = functional.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)
    torch.testing.assert_close(scores.loss, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(scores.correct, logits.argmax(1) == targets)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("tile", [(1, 1), (4, 28), (5, 1000), (23, 23), (100, 100_000), None])
def test_tiles_of_any_size(tile, smoothing, with_bias):
    hidden, weight, bias, targets = parts()
    check(hidden, weight, bias if with_bias else None, targets, smoothing=smoothing, tile=tile)


@pytest.mark.parametrize("seed", range(5))
def test_tiles_of_random_sizes(seed):
    draw = torch.Generator().manual_seed(seed)
    tokens, vocabulary, rows, elements = torch.randint(1, 60, (4,), generator=draw).tolist()
    check(*parts(tokens, vocabulary), tile=(rows, elements * 5))


@pytest.mark.parametrize(
    ("transform", "apply"),
    [
        (LogitTransform(factor=0.3), lambda logits: logits * 0.3),
        (LogitTransform(divisor=4.0), lambda logits: logits / 4.0),
        (LogitTransform(cap=5.0), lambda logits: 5.0 * torch.tanh(logits / 5.0)),
        (LogitTransform(2.0, 4.0, 3.0), lambda logits: 3.0 * torch.tanh(logits * 2.0 / 4.0 / 3.0)),
    ],
)
def test_transforms(transform, apply):
    hidden, weight, bias, targets = parts()
    check(
        hidden,
        weight,
        bias,
        targets,
        logits=apply(functional.linear(hidden, weight, bias)),
        transform=transform,
        tile=(7, 50),
    )


def test_large_logits_lose_no_precision():
    hidden, weight, bias, targets = parts(scale=1000.0)
    exact = functional.cross_entropy(functional.linear(hidden, weight, bias).double(), targets, reduction="none")
    scores = projected_cross_entropy(hidden, weight, bias, targets, tile=(7, 50))
    torch.testing.assert_close(scores.loss.double(), exact, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("tile", [(3, 3), (3, 9), (3, 300)])
def test_among_equal_logits_the_first_class_is_the_prediction(tile):
    hidden, weight = torch.ones(6, 1), torch.tensor([0.0, 2.0, 1.0, 2.0, 2.0, 0.0])[:, None]
    check(hidden, weight, None, torch.arange(6), tile=tile)
    scores = projected_cross_entropy(hidden, weight, None, torch.arange(6), tile=tile)
    assert scores.correct.tolist() == [False, True, False, False, False, False]


@pytest.mark.parametrize("tile", [(3, 6), (3, 300)])
def test_classes_that_are_masked_with_infinity(tile):
    hidden, weight, bias, targets = parts(tokens=6, vocabulary=10)
    bias[[0, 1, 2, 5]] = -torch.inf
    targets[:] = torch.tensor([3, 4, 6, 7, 9, 0])
    check(hidden, weight, bias, targets, tile=tile)
    assert projected_cross_entropy(hidden, weight, bias, targets, tile=tile).loss[5] == torch.inf


def test_a_token_that_is_not_finite_spoils_no_other():
    hidden, weight, bias, targets = parts()
    hidden[4] = torch.nan
    scores = projected_cross_entropy(hidden, weight, bias, targets, tile=(10, 90))
    assert scores.loss.isnan().nonzero().tolist() == [[4]]
    assert not scores.correct[4]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_are_multiplied_as_they_are(dtype):
    check(*parts(dtype=dtype), tile=(23, 23 * 37))
    assert projected_cross_entropy(*parts(dtype=dtype)).loss.dtype == torch.float32


def test_half_precision_softmax_over_many_classes_stays_finite():
    hidden, weight, _, targets = parts(tokens=8, vocabulary=40_000, dtype=torch.float16)
    loss = projected_cross_entropy(hidden, weight, None, targets).loss
    logits = functional.linear(hidden.float(), weight.float())
    assert loss.isfinite().all()
    torch.testing.assert_close(loss, functional.cross_entropy(logits, targets, reduction="none"), rtol=1e-2, atol=1e-2)


def test_double_precision_is_kept():
    hidden, weight, bias, targets = parts(dtype=torch.float64)
    scores = projected_cross_entropy(hidden, weight, bias, targets, tile=(7, 50))
    exact = functional.cross_entropy(functional.linear(hidden, weight, bias), targets, reduction="none")
    torch.testing.assert_close(scores.loss, exact, rtol=1e-13, atol=0.0)


def test_autocast_multiplies_in_half_precision():
    hidden, weight, bias, targets = parts()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = projected_cross_entropy(hidden, weight, bias, targets)
        logits = functional.linear(hidden, weight, bias)
    assert logits.dtype == torch.bfloat16
    expected = functional.cross_entropy(logits.float(), targets, reduction="none")
    torch.testing.assert_close(scores.loss, expected, rtol=1e-5, atol=1e-5)


def test_no_token_gives_no_score():
    _, weight, bias, _ = parts()
    scores = projected_cross_entropy(torch.zeros(0, WIDTH), weight, bias, torch.zeros(0, dtype=torch.long))
    assert scores.loss.shape == scores.correct.shape == (0,)
    assert scores.correct.dtype == torch.bool


@pytest.mark.parametrize("target", [-1, 37])
def test_targets_outside_the_vocabulary_are_refused(target):
    hidden, weight, bias, targets = parts()
    targets[3] = target
    with pytest.raises(ValueError, match=r"targets range from .* vocabulary has 37 entries.*mask positions.*-100"):
        projected_cross_entropy(hidden, weight, bias, targets)


class Holder:
    def __init__(self, config):
        self.config = config


@pytest.mark.parametrize(
    ("config", "transforms"),
    [
        (LlamaConfig(), [LogitTransform()]),
        (
            GraniteConfig(logits_scaling=8.0),
            [LogitTransform(divisor=8.0), LogitTransform(factor=8.0), LogitTransform()],
        ),
        (Gemma2Config(final_logit_softcapping=30.0), [LogitTransform(cap=30.0), LogitTransform()]),
        (Gemma2Config(final_logit_softcapping=None), [LogitTransform()]),
    ],
)
def test_transforms_that_a_configuration_allows(config, transforms):
    assert candidate_transforms(Holder(config)) == transforms
