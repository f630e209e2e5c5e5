"""Weights and models are told apart by every value and by what is computed with them."""

import copy
import functools

import pytest
import torch
from torch import nn

from hf_trainplus.evaluation.fingerprints import ObjectFingerprints, fingerprint_model, fingerprint_weights
from hf_trainplus.evaluation.fingerprints.weights import fingerprint_tensor
from hf_trainplus.identity import UnknownIdentityError
from tests.support import tiny


def of_model(model):
    return ObjectFingerprints().of_model(model)


def test_every_parameter_counts():
    model = tiny.bert()
    found = {fingerprint_weights(model)}
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.view(-1)[-1] += 1
        found.add(fingerprint_weights(model))
    assert len(found) == 1 + len(list(model.parameters()))


def test_the_smallest_change_counts():
    model = nn.Linear(300, 300)
    before = fingerprint_weights(model)
    with torch.no_grad():
        model.weight.view(torch.int32)[17, 5] ^= 1
    assert fingerprint_weights(model) != before


def test_writes_that_torch_does_not_count_are_seen():
    model = nn.Linear(2, 2)
    before, version = fingerprint_weights(model), model.weight._version
    model.weight.data[0, 0] += 1
    assert model.weight._version == version
    changed = fingerprint_weights(model)
    assert changed != before
    model.weight.detach().numpy()[0, 0] -= 3
    assert model.weight._version == version
    assert fingerprint_weights(model) not in (before, changed)


def test_an_optimizer_step_and_its_undoing_are_seen():
    model = nn.Linear(2, 2)
    before, kept = fingerprint_weights(model), copy.deepcopy(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert fingerprint_weights(model) != before
    model.load_state_dict(kept)
    assert fingerprint_weights(model) == before


def test_buffers_count_also_those_that_are_not_saved():
    model = nn.Module()
    model.register_buffer("a", torch.zeros(2))
    model.register_buffer("b", torch.zeros(2), persistent=False)
    found = [fingerprint_weights(model)]
    for buffer in (model.a, model.b):
        buffer += 1
        found.append(fingerprint_weights(model))
    assert len(set(found)) == 3


def test_running_statistics_count():
    model = nn.BatchNorm1d(2)
    before = fingerprint_weights(model)
    model.train()(torch.randn(4, 2))
    assert fingerprint_weights(model) != before


def test_names_places_and_types_count():
    one, two = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    found = [
        nn.ModuleDict({"a": one, "b": two}),
        nn.ModuleDict({"a": two, "b": one}),
        nn.ModuleDict({"a": one, "c": two}),
    ]
    found += [copy.deepcopy(found[0]).half(), copy.deepcopy(found[0]).bfloat16(), nn.ModuleDict({"a": one, "b": one})]
    assert len({fingerprint_weights(model) for model in found}) == len(found)


def test_tied_weights_are_read_once_and_told_from_equal_ones(monkeypatch):
    tied = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    equal = copy.deepcopy(tied)
    equal.b.load_state_dict(equal.a.state_dict())
    tied.load_state_dict(equal.state_dict())
    tied.b.weight = tied.a.weight
    read = []
    module = "hf_trainplus.evaluation.fingerprints.weights"
    add = functools.partial(__import__(module, fromlist=["_add_values"])._add_values)
    monkeypatch.setattr(f"{module}._add_values", lambda digest, values: (read.append(values), add(digest, values)))
    assert fingerprint_weights(tied) != fingerprint_weights(equal)
    assert len(read) == 3 + 4


def test_large_tensors_are_read_in_pieces(monkeypatch):
    model = nn.Linear(64, 64)
    whole = fingerprint_weights(model)
    monkeypatch.setattr("hf_trainplus.evaluation.fingerprints.weights.PIECE_BYTES", 1000)
    before = fingerprint_weights(model)
    with torch.no_grad():
        model.weight[63, 63] += 1
    assert len({whole, before, fingerprint_weights(model)}) == 3


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.complex64])
def test_tensors_of_any_type_are_read(dtype):
    values = torch.tensor([0, 1, 1]).to(dtype)
    assert fingerprint_tensor(values) != fingerprint_tensor(torch.tensor([0, 1, 0]).to(dtype))
    assert fingerprint_tensor(values) == fingerprint_tensor(torch.tensor([0, 9, 1, 9, 1]).to(dtype)[[0, 2, 4]])


def test_memory_layout_does_not_count_and_shape_does():
    values = torch.arange(6.0).reshape(2, 3)
    assert fingerprint_tensor(values.T.contiguous().T) == fingerprint_tensor(values)
    assert fingerprint_tensor(values.T) != fingerprint_tensor(values.reshape(3, 2))
    assert fingerprint_tensor(torch.tensor(1.0)) != fingerprint_tensor(torch.tensor([1.0]))
    assert fingerprint_tensor(torch.zeros(0, 2)) != fingerprint_tensor(torch.zeros(2, 0))


class Packed(torch.Tensor):
    """A tensor whose scale lies beside it."""


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.zeros(2, device="meta"), "is not loaded"),
        (torch.zeros(2).to_sparse(), "layout torch.sparse_coo"),
        (torch.zeros(2).as_subclass(Packed), "is a Packed, whose values are not all in the tensor"),
    ],
)
def test_weights_that_cannot_be_read_are_refused_by_name(tensor, reason):
    model = nn.Module()
    model.register_buffer("weight", tensor)
    with pytest.raises(UnknownIdentityError, match=f"the buffer weight .*{reason}"):
        fingerprint_weights(model)


def test_the_configuration_counts_and_where_it_came_from_does_not():
    base = tiny.bert()
    found = {of_model(base)}
    for changes in (
        {"hidden_act": "relu"},
        {"layer_norm_eps": 1e-3},
        {"problem_type": "regression"},
        {"id2label": {0: "a"}},
    ):
        model = tiny.bert()
        for name, value in changes.items():
            setattr(model.config, name, value)
        found.add(of_model(model))
    assert len(found) == 5
    same = tiny.bert()
    same.config._name_or_path, same.name_or_path = "elsewhere", "elsewhere"
    assert of_model(same) == of_model(tiny.bert())


def test_equal_weights_in_another_architecture_are_another_model():
    one, two = tiny.bert(), tiny.bert()
    two.bert.encoder.layer[0].attention.self.num_attention_heads = 4
    three = tiny.bert()
    three.bert.encoder.layer[0].intermediate.intermediate_act_fn = nn.ReLU()
    four = tiny.bert()
    four.dropout.p = 0.5
    assert len({of_model(model) for model in (one, two, three, four)}) == 4
    assert fingerprint_weights(one) == fingerprint_weights(two) == fingerprint_weights(three)


def head(scale):
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)
            nn.init.zeros_(self.inner.weight)
            nn.init.zeros_(self.inner.bias)

        def forward(self, x):
            return self.inner(x) * scale

    return Head()


def test_the_code_of_a_users_model_counts():
    assert of_model(head(1)) == of_model(head(1))
    assert of_model(head(1)) != of_model(head(2))


def test_a_replaced_forward_and_a_hook_count():
    model = nn.Linear(2, 2)
    found = [of_model(model)]
    handle = model.register_forward_hook(lambda module, inputs, output: output * 2)
    found.append(of_model(model))
    handle.remove()
    assert of_model(model) == found[0]
    model.forward = lambda x: x
    found.append(of_model(model))
    model.forward = lambda x: -x
    found.append(of_model(model))
    assert len(set(found)) == 4


def test_train_and_eval_mode_do_not_count():
    model = tiny.bert(dropout=0.1)
    assert of_model(model.train()) == of_model(model.eval())


def test_tensors_that_are_no_parameters_count():
    model = nn.Linear(2, 2)
    model.scale = torch.ones(1)
    before = fingerprint_model(model, ObjectFingerprints()._kinds)
    model.scale += 1
    assert fingerprint_model(model, ObjectFingerprints()._kinds) != before


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_adapters_count_switched_on_and_off():
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny.bert(), LoraConfig(target_modules=["query"], task_type="SEQ_CLS"))
    found = [of_model(model)]
    with model.disable_adapter():
        found.append(of_model(model))
    assert of_model(model) == found[0]
    model.base_model.model.bert.encoder.layer[0].attention.self.query.scaling["default"] *= 2
    found.append(of_model(model))
    assert len(set(found)) == 3


def test_what_a_module_holds_and_nobody_can_read_is_named():
    model = nn.Sequential(nn.Linear(2, 2))
    model[0].lock = __import__("threading").Lock()
    with pytest.raises(UnknownIdentityError, match="of the module '0', what a lock holds cannot be read"):
        fingerprint_model(model)
