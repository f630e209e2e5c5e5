"""Formulas against PyTorch's own count of what a tiny model multiplies, forward and backward."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertForSequenceClassification, BigBirdConfig

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
        loss = model(**tiny_models.inputs(getattr(model, "get_base_model", lambda: model)())).loss
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


def frozen(model, *parts):
    for name, parameter in model.named_parameters():
        parameter.requires_grad = not any(part in name for part in parts)
    return model


def head_only():
    model = tiny_models.llama(4)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "lm_head" in name
    return model


def lora(model, *targets, task="CAUSAL_LM", **options):
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=list(targets), task_type=task, **options))


def bert_classifier():
    return tiny_models.bert(BertForSequenceClassification, 4)


LOWER = ("embed", "wte", "wpe", "layers.0.", "layers.1.", "layer.0.", "layer.1.", "h.0.", "h.1.")


# PEFT 0.21 reads a property that transformers 5.24 has renamed
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning", "ignore:.*fan_in_fan_out.*")
@pytest.mark.parametrize(
    ("make", "within"),
    [
        (lambda: frozen(tiny_models.llama(4), *LOWER), 1e-9),
        (lambda: frozen(tiny_models.gpt2(4), *LOWER), 1e-9),
        (lambda: frozen(bert_classifier(), *LOWER), 1e-9),
        (lambda: frozen(bert_classifier(), "embeddings"), 1e-9),
        (lambda: frozen(bert_classifier(), "bert."), 1e-9),
        (lambda: frozen(tiny_models.gpt2(4), ".weight"), 1e-9),
        (lambda: frozen(tiny_models.t5(), "encoder.", "shared"), 1e-9),
        (head_only, 1e-9),
        (lambda: lora(tiny_models.gpt2(4), "c_attn"), 1e-9),
        # in the first layer that has adapters, the gradient of the keys is counted though nothing needs it
        (lambda: lora(tiny_models.llama(4), "q_proj", "v_proj"), 0.015),
        (lambda: lora(tiny_models.llama(4), "q_proj", "v_proj", layers_to_transform=[2, 3]), 0.015),
        (lambda: lora(bert_classifier(), "query", "value", task="SEQ_CLS"), 0.015),
        (lambda: lora(tiny_models.llama(4), "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "down_proj"), 1e-9),
    ],
    ids=[
        "Llama's lower half",
        "GPT-2's lower half",
        "BERT's lower half",
        "BERT's embeddings",
        "BERT's body",
        "all but biases",
        "T5's encoder",
        "all but the head",
        "LoRA in GPT-2",
        "LoRA on q and v",
        "LoRA in upper layers",
        "LoRA in a classifier",
        "LoRA everywhere",
    ],
)
def test_frozen_parts_cost_no_gradient_of_their_own(make, within):
    model = make()
    forward, both = counted(model)
    shape = read_model(model)
    assert forward_flops(shape, tokens_of(model)).total == forward
    assert training_flops(shape, tokens_of(model)).total == pytest.approx(both, rel=within)
    assert shape.trainable_parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)


def checkpointed(model, *, reentrant=False):
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": reentrant})
    model.train()
    return model


@pytest.mark.filterwarnings(
    "ignore:.*is_gradient_checkpointing.*:FutureWarning",
    "ignore:.*gradient_checkpointing_enable.*:FutureWarning",
    "ignore:.*fan_in_fan_out.*",
)
@pytest.mark.parametrize(
    ("make", "within"),
    [
        (lambda: checkpointed(tiny_models.gpt2(4)), 1e-9),
        (lambda: checkpointed(bert_classifier()), 1e-9),
        (lambda: checkpointed(tiny_models.t5()), 1e-9),
        (lambda: checkpointed(frozen(tiny_models.gpt2(4), *LOWER)), 1e-9),
        (lambda: checkpointed(lora(tiny_models.gpt2(4), "c_attn")), 1e-9),
        # PyTorch leaves out the last product of a block without dropout, whose output nothing in its backward pass needs
        (lambda: checkpointed(tiny_models.llama(4)), 0.05),
        (lambda: checkpointed(lora(tiny_models.llama(4), "q_proj", "v_proj")), 0.06),
    ],
    ids=["GPT-2", "BERT", "T5", "frozen lower half", "LoRA in GPT-2", "Llama", "LoRA in Llama"],
)
def test_checkpointing_computes_every_block_again_and_lets_the_gradient_reach_the_embeddings(make, within):
    model = make()
    _, both = counted(model)
    cost = training_flops(read_model(model), tokens_of(model), gradient_checkpointing=True)
    assert cost.total == pytest.approx(both, rel=within)


def test_the_head_is_not_computed_again():
    cost = training_flops(read_model(tiny_models.llama(4)), Tokens(ROWS * LENGTH, LENGTH), gradient_checkpointing=True)
    head = 2 * 64 * tiny_models.WORDS * ROWS * LENGTH
    assert cost.recomputation == cost.forward + cost.attention - head


@pytest.mark.parametrize("name", ["longformer", "led"])
def test_attention_in_windows_is_counted_in_windows(name):
    """Left out are the global token's own attention and the products that mask what is outside of a window."""
    model = getattr(tiny_models, name)()
    forward, both = counted(model)
    shape = read_model(model)
    assert forward_flops(shape, tokens_of(model)).total == pytest.approx(forward, rel=0.01)
    assert training_flops(shape, tokens_of(model)).total == pytest.approx(both, rel=0.01)
    assert any("one global token a sequence is assumed" in note for note in shape.notes)


def test_attention_in_windows_grows_with_the_tokens_alone():
    shape = ModelShape("one", 1, 1, (), (Attention(1, 8, 8, window=16, banded=True),))
    short, long = (forward_flops(shape, Tokens(16 * 64, length)).attention for length in (64, 1024))
    assert short == 2 * 16 * 8 * (16 * (2 * 64 - 16) + 1.5 * 16 * 64)
    assert long / short == pytest.approx(1.07, abs=0.01)
    assert forward_flops(shape, Tokens(640, 64, kernel="skipping")).attention == 640 * 2 * 16 * 16


def test_block_sparse_attention_is_said_to_be_counted_as_dense():
    config = BigBirdConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    assert any("block-sparse attention is counted as dense" in note for note in read_model(config).notes)


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
    with pytest.raises(ValueError, match="allowed are finite numbers above 0"):
        Tokens(**wrong)


def test_kernels_have_names():
    with pytest.raises(ValueError, match="kernel='flash'; allowed: 'dense', 'skipping'"):
        Tokens(1, kernel="flash")
