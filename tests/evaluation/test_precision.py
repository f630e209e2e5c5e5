"""Autocast in evaluation alone: what it casts, what it leaves, and what it refuses."""

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn

from hf_trainplus.evaluation.chunked_causal import ChunkedCausalLoss
from hf_trainplus.evaluation.losses import find_loss_kind, reproduces
from hf_trainplus.evaluation.precision import check_precision, evaluation_autocast
from tests.support import loss_models as models

DTYPES = {None: torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


class Watched(nn.Module):
    """Two layers that note the dtype of what the first computes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)
        self.seen = []

    def forward(self, x):
        hidden = self.first(x)
        self.seen.append(hidden.dtype)
        return self.second(hidden.float())


@pytest.fixture
def accelerator():
    AcceleratorState._reset_state(reset_partial_state=True)
    yield Accelerator(mixed_precision="bf16", cpu=True)
    AcceleratorState._reset_state(reset_partial_state=True)


def state(model):
    return {name: (value.dtype, value.clone()) for name, value in model.state_dict().items()}


def is_unchanged(model, before):
    now = model.state_dict()
    return all(now[name].dtype == dtype and torch.equal(now[name], value) for name, (dtype, value) in before.items())


@pytest.mark.parametrize("precision", DTYPES)
def test_forward_passes_run_in_the_precision(precision):
    model = Watched()
    with evaluation_autocast(precision, "cpu"), torch.no_grad():
        model(torch.ones(1, 4))
    model(torch.ones(1, 4))
    assert model.seen == [DTYPES[precision], torch.float32]


@pytest.mark.parametrize("outside", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
def test_the_precision_wins_over_an_enclosing_autocast(precision, outside):
    model = Watched()
    with torch.autocast("cpu", dtype=outside):
        with evaluation_autocast(precision, "cpu"), torch.no_grad():
            model(torch.ones(1, 4))
        model(torch.ones(1, 4))
    assert model.seen == [DTYPES[precision], outside]


def test_none_leaves_the_precision_of_the_training():
    model = Watched()
    with torch.autocast("cpu", dtype=torch.bfloat16), evaluation_autocast(None, "cpu", model=model):
        model(torch.ones(1, 4))
    assert model.seen == [torch.bfloat16]


@pytest.mark.parametrize("wrap", [lambda model: model, nn.DataParallel], ids=["bare", "wrapped"])
@pytest.mark.parametrize("precision", DTYPES)
def test_the_autocast_that_accelerate_put_on_the_model_is_lifted(precision, wrap, accelerator):
    model = Watched()
    prepared = accelerator.prepare_model(model)
    forward = vars(model)["forward"]
    with evaluation_autocast(precision, "cpu", model=wrap(prepared)), torch.no_grad():
        prepared(torch.ones(1, 4))
    prepared(torch.ones(1, 4))
    assert model.seen == [DTYPES[precision or "bf16"], torch.bfloat16]
    assert vars(model)["forward"] is forward


def test_the_autocast_of_the_training_is_back_after_an_error(accelerator):
    model = accelerator.prepare_model(Watched())
    forward = vars(model)["forward"]

    def fail_inside():
        with evaluation_autocast("fp32", "cpu", model=model):
            raise KeyError("metric")

    with pytest.raises(KeyError, match="metric"):
        fail_inside()
    model(torch.ones(1, 4))
    assert vars(model)["forward"] is forward
    assert model.seen == [torch.bfloat16]
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
def test_weights_are_never_cast(precision):
    model, inputs = models.llama(), models.token_batch(2)
    before = state(model)
    addresses = [parameter.data_ptr() for parameter in model.parameters()]
    with evaluation_autocast(precision, "cpu", model=model), torch.no_grad():
        model(**inputs)
        assert is_unchanged(model, before)
    assert is_unchanged(model, before)
    assert [parameter.data_ptr() for parameter in model.parameters()] == addresses


def train(model, evaluate_every, precision=None, outside=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    for step in range(6):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=outside or torch.bfloat16, enabled=outside is not None):
            loss = model(inputs).square().mean()
            if evaluate_every and step % evaluate_every == 0:
                # Also here, between two passes of one step, in one autocast with them.
                with evaluation_autocast(precision, "cpu", model=model), torch.no_grad():
                    model(inputs)
            loss = loss + model(inputs + 1).square().mean()
        loss.backward()
        optimizer.step()
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("outside", [None, torch.bfloat16])
@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
def test_training_goes_on_as_without_evaluations(precision, outside):
    expected = train(Watched(), 0, outside=outside)
    with_evaluations = train(Watched(), 1, precision, outside)
    assert all(torch.equal(with_evaluations[name], value) for name, value in expected.items())


def test_casts_made_without_gradients_do_not_cost_the_training_its_own():
    model, x = Watched(), torch.ones(1, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with evaluation_autocast("bf16", "cpu"), torch.no_grad():
            model(x)
        model(x).sum().backward()
    assert model.first.weight.grad is not None


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_softmax_over_many_classes_stays_finite(precision):
    torch.manual_seed(0)
    head, hidden = nn.Linear(16, 40_000), torch.randn(1, 6, 16) * 10
    labels = torch.randint(0, 40_000, (1, 6))
    kind = find_loss_kind(models.llama())
    with evaluation_autocast(precision, "cpu"), torch.no_grad():
        logits = head(hidden)
        losses = kind.example_losses(logits, {"labels": labels})
    assert logits.dtype == DTYPES[precision]
    assert logits.exp().sum() == torch.inf or precision == "bf16"
    with torch.no_grad():
        reference = kind.example_losses(head(hidden), {"labels": labels})
    assert losses.loss_sum.item() == pytest.approx(reference.loss_sum.item(), rel=1e-2)


@pytest.mark.parametrize("precision", DTYPES)
def test_losses_of_rows_and_losses_without_logits_agree_in_every_precision(precision, accelerator):
    model, inputs = accelerator.prepare_model(models.llama()), models.token_batch(3)
    with evaluation_autocast(precision, "cpu", model=model), torch.no_grad():
        outputs = model(**inputs)
        losses = find_loss_kind(model).example_losses(outputs, inputs)
        chunked = ChunkedCausalLoss()
        without_logits = chunked.example_losses(model, inputs)
    assert reproduces(losses, outputs.loss)
    assert chunked.reason is None
    assert without_logits.loss_sum.tolist() == pytest.approx(losses.loss_sum.tolist(), rel=1e-3)


@pytest.mark.parametrize(
    ("precision", "device", "message"),
    [
        ("int8", "cpu", r"eval_precision is 'int8'; allowed are None, 'bf16', 'fp16', 'fp32'.*eval_precision='bf16'"),
        ("BF16", "cpu", "eval_precision is 'BF16'; allowed are"),
        ("fp16", "meta", r"'fp16' on a 'meta' device, which cannot do it.*Pass eval_precision='fp32'"),
    ],
)
def test_what_cannot_be_done_is_refused(precision, device, message):
    with pytest.raises(ValueError, match=message):
        check_precision(precision, device)
    with pytest.raises(ValueError, match=message), evaluation_autocast(precision, device):
        pass


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_a_device_that_is_absent_is_refused_rather_than_run_in_full_precision():
    with pytest.raises(ValueError, match="'bf16' on a 'cuda' device, which cannot do it: CUDA is not available"):
        check_precision("bf16", "cuda")
    check_precision("fp32", "cuda")


@pytest.mark.parametrize("precision", DTYPES)
def test_every_precision_is_offered_on_a_cpu(precision):
    check_precision(precision, "cpu")
