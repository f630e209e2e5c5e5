"""The schedule that was planned, read at the share of the budget."""

import pytest
import torch
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from hf_trainplus.budget.keeping.share_schedule import share_multiplier


def schedule(make, total=1000, warmup=100):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    return make(optimizer, num_warmup_steps=warmup, num_training_steps=total).lr_lambdas[0]


@pytest.mark.parametrize("make", [get_linear_schedule_with_warmup, get_cosine_schedule_with_warmup])
def test_warm_up_shape_and_end_are_the_planned_ones(make):
    multiplier = schedule(make)
    for share in (0.0, 0.05, 0.1, 0.5, 0.999):
        assert share_multiplier(multiplier, share, 1000) == pytest.approx(multiplier(round(share * 1000)))
    assert share_multiplier(multiplier, 0.1, 1000) == pytest.approx(1.0)
    assert share_multiplier(multiplier, 1.0, 1000) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("share", "total"), [(-0.1, 10), (1.1, 10), (0.5, 0), (float("nan"), 10)])
def test_shares_lie_between_zero_and_one(share, total):
    with pytest.raises(ValueError, match="allowed: share from 0 to 1 and steps >= 1"):
        share_multiplier(lambda step: 1.0, share, total)
