"""Finding loss and logits in what models return, and the dtype in which losses are summed."""

import pytest
import torch
from transformers.modeling_outputs import SequenceClassifierOutput

from hf_trainplus.evaluation.loss_kinds.base import find_logits, find_loss, sum_dtype, sum_rows

LOGITS = torch.zeros(2, 3)


@pytest.mark.parametrize(
    "outputs",
    [
        LOGITS,
        {"logits": LOGITS, "hidden_states": (torch.zeros(2, 9),)},
        SequenceClassifierOutput(loss=torch.tensor(1.0), logits=LOGITS),
        (LOGITS, torch.zeros(2, 9)),
        (torch.tensor(1.0), LOGITS, torch.zeros(2, 9)),
        (torch.tensor([1.0, 2.0]), LOGITS),
    ],
    ids=["tensor", "dictionary", "model_output", "tuple", "tuple_with_loss", "tuple_with_loss_a_device"],
)
def test_main_logits(outputs):
    assert find_logits(outputs) is LOGITS


@pytest.mark.parametrize("outputs", [{"hidden": LOGITS}, {"logits": (LOGITS, LOGITS)}, (torch.tensor(1.0),), (), [3]])
def test_outputs_without_logits(outputs):
    assert find_logits(outputs) is None


@pytest.mark.parametrize(
    ("outputs", "loss"),
    [
        ({"loss": torch.tensor(1.0), "logits": LOGITS}, 1.0),
        ((torch.tensor(2.0), LOGITS), 2.0),
        ({"logits": LOGITS}, None),
        ((LOGITS,), None),
        (LOGITS, None),
        ((), None),
    ],
)
def test_loss(outputs, loss):
    found = find_loss(outputs)
    assert found is None if loss is None else found.item() == loss


def test_sums_are_double_where_the_device_has_it():
    assert sum_dtype(torch.device("cpu")) == torch.float64
    assert sum_dtype(torch.device("cuda")) == torch.float64
    assert sum_dtype(torch.device("mps")) == torch.float32


def test_sums_hold_no_graph():
    losses = sum_rows(torch.ones(2, 3, 4, requires_grad=True), torch.tensor([12, 12], dtype=torch.int32))
    assert losses.loss_sum.tolist() == [12.0, 12.0]
    assert not losses.loss_sum.requires_grad
    assert losses.target_count.dtype == torch.int64
