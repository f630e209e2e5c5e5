"""Formulas against PyTorch's own count of what a tiny model multiplies, forward and backward."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hf_trainplus.budget.costs.flops import Tokens, forward_flops, training_flops
from hf_trainplus.budget.costs.model_reading import read_model
from hf_trainplus.budget.costs.model_shape import Attention, ModelShape, Product
from tests.budget.costs import tiny_models
from tests.budget.costs.tiny_models import LENGTH, ROWS, TARGET

MODELS = ["llama", "gpt2", "bert", "classifier", "albert", "t5", "bart", "mixtral", "qwen2_moe", "switch"]


def counted(model):
    """Operations forward, and forward plus backward, as PyTorch counts them."""
    torch.manual_seed(0)
    with FlopCounterMode(display=False) as forward:
        loss = model(**tiny_models.inputs(model)).loss
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return forward.get_total_flops(), forward.get_total_flops() + backward.get_total_flops()


def tokens_of(model):
    target = {"target_tokens": ROWS * TARGET, "target_length": TARGET} if model.config.is_encoder_decoder else {}
    return Tokens(ROWS * LENGTH, LENGTH, **target)


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_is_counted_exactly(name):
    model = getattr(tiny_models, name)()
    forward, both = counted(model)
    shape, tokens = read_model(model), tokens_of(model)
    assert forward_flops(shape, tokens).total == forward
    assert training_flops(shape, tokens).total == both


@pytest.mark.parametrize(("name", "chosen"), [("mixtral", 2 / 4), ("qwen2_moe", 2 / 8)])
def test_only_activated_experts_count(name, chosen):
    shape = read_model(getattr(tiny_models, name)())
    assert {product.share for product in shape.products} == {1.0, chosen}
    assert shape.activated_parameters < 0.7 * shape.parameters


def frozen_below():
    model = tiny_models.llama(4)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = not ("embed" in name or "layers.0." in name or "layers.1." in name)
    return model


def head_only():
    model = tiny_models.llama(4)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "lm_head" in name
    return model


def lora(targets):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM")
    return peft.get_peft_model(tiny_models.llama(4), config)


# PEFT 0.21 reads a property that transformers 5.24 has renamed
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
@pytest.mark.parametrize(
    ("make", "within"),
    [
        (frozen_below, 0.02),
        (head_only, 1e-9),
        # the gradient of the very first projections' input is counted though nothing lies below
        (lambda: lora(["q_proj", "v_proj"]), 0.03),
        (lambda: lora("all-linear"), 0.02),
    ],
    ids=["lower half frozen", "head only", "LoRA on q and v", "LoRA everywhere"],
)
def test_frozen_parts_cost_no_gradient_of_their_own(make, within):
    model = make()
    _, both = counted(model)
    shape = read_model(model)
    assert training_flops(shape, tokens_of(model)).total == pytest.approx(both, rel=within)
    assert shape.trainable_parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_checkpointing_adds_a_forward_pass_of_the_blocks():
    model = tiny_models.llama(4)
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": False})
    model.train()
    _, both = counted(model)
    shape, tokens = read_model(model), tokens_of(model)
    cost = training_flops(shape, tokens, gradient_checkpointing=True)
    # PyTorch leaves out the last product of a block, whose output nothing in the backward pass needs
    assert cost.total == pytest.approx(both, rel=0.05)
    head = 2 * 64 * tiny_models.WORDS * ROWS * LENGTH
    assert cost.recomputation == cost.forward + cost.attention - head


def test_the_rule_of_thumb_for_a_number_of_parameters():
    shape = ModelShape.of_count(175e9)
    assert training_flops(shape, Tokens(300e9)).total == pytest.approx(3.15e23)
    assert forward_flops(shape, Tokens(1e6)).total == pytest.approx(3.5e17)


def test_dense_attention_is_the_published_term():
    layers, width, length = 96, 96 * 128, 2048
    shape = ModelShape("palm-like", 1, 1, (), (Attention(layers, width, width),))
    cost = training_flops(shape, Tokens(length, length))
    assert cost.total / length == 12 * layers * width * length


@pytest.mark.parametrize(
    ("causal", "window", "seen"),
    [(True, None, (1 + 2 + 3 + 4) / 4), (True, 2, (1 + 2 + 2 + 2) / 4), (False, 3, 3), (False, None, 4)],
)
def test_a_skipping_kernel_multiplies_what_is_seen(causal, window, seen):
    shape = ModelShape("one", 1, 1, (), (Attention(1, 8, 8, causal, window),))
    cost = forward_flops(shape, Tokens(4, 4, kernel="skipping"))
    assert cost.attention == pytest.approx(4 * 8 * seen * 4)


def test_attention_grows_with_the_length_and_weights_do_not():
    shape = read_model(tiny_models.llama())
    short, long = (training_flops(shape, Tokens(1e6, length)) for length in (128, 256))
    assert long.attention == 2 * short.attention
    assert long.forward == short.forward


def test_a_pooler_counts_once_a_sequence():
    shape = ModelShape("pooler", 10, 10, (Product(10, side="sequence"),))
    assert forward_flops(shape, Tokens(100, 25)).total == 2 * 10 * 4


@pytest.mark.parametrize("wrong", [{"tokens": 0}, {"tokens": 1, "length": -1}, {"tokens": 1, "target_tokens": 0}])
def test_numbers_are_above_zero(wrong):
    with pytest.raises(ValueError, match="allowed are numbers above 0"):
        Tokens(**wrong)


def test_kernels_have_names():
    with pytest.raises(ValueError, match="kernel='flash'; allowed: 'dense', 'skipping'"):
        Tokens(1, kernel="flash")
