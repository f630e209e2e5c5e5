"""Memory against what autograd keeps for tiny models, and against the published table of sharding stages."""

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from hf_trainplus.budget.costs.memory import OPTIMIZER_BYTES, MemoryPlan, block_bytes, training_memory
from hf_trainplus.budget.costs.model_reading import read_model
from hf_trainplus.budget.costs.model_shape import ModelShape
from tests.budget.costs import tiny_models

ROWS, LENGTH = 2, 128


def kept(model, autocast, targets=LENGTH):
    """Bytes that autograd keeps for the backward pass, weights left out."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    sizes = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.randint(3, tiny_models.WORDS, (ROWS, LENGTH))
    model.train()
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=autocast),
    ):
        output = model(input_ids=ids, labels=ids[:, :targets].contiguous())
    assert output.loss is not None
    return sum(sizes.values())


WIDE = {"hidden_size": 128, "intermediate_size": 344, "num_attention_heads": 4, "num_key_value_heads": 2}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def make(name, layers, attention):
    if name == "llama":
        return tiny_models.llama(layers, **WIDE, attn_implementation=attention)
    if name == "gpt2":
        dropout = {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
        return tiny_models.gpt2(layers, n_embd=128, **dropout, attn_implementation=attention)
    sizes = {"hidden_size": 128, "intermediate_size": 512, **NO_DROPOUT}
    return tiny_models.bert(layers=layers, **sizes, attn_implementation=attention)


@pytest.mark.parametrize("autocast", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
def test_a_block_keeps_what_autograd_keeps(name, attention, autocast):
    few, many = (make(name, layers, attention) for layers in (2, 4))
    measured = (kept(many, autocast) - kept(few, autocast)) / 2 / (ROWS * LENGTH)
    shape = read_model(many)
    plan = MemoryPlan(
        batch_size=ROWS, length=LENGTH, compute_bytes=2 if autocast else 4, fused_attention=attention == "sdpa"
    )
    predicted = block_bytes(shape.sizes, plan)
    if autocast:
        # autocast's copies of the weights are kept too; they are counted apart, once and not a token
        a_block = sum(product.weights for product in shape.products if product.in_block) / 4
        predicted += 2 * a_block / (ROWS * LENGTH)
    # BERT's eager softmax stays in 16 bits under autocast, where the formula takes it for float32
    within = 0.25 if (name, attention, autocast) == ("bert", "eager", True) else 0.15
    assert predicted == pytest.approx(measured, rel=within)


def test_the_published_table_of_stages():
    """Rajbhandari et al. 2020, figure 1: 7.5e9 parameters, 64 devices, 16-bit weights, Adam."""
    shape = ModelShape.of_count(7.5e9)
    expected = {"none": 120.0, "zero1": 31.4, "zero2": 16.6, "zero3": 1.9}
    for sharding, gigabytes in expected.items():
        plan = MemoryPlan(weight_bytes=2, master_weights=True, devices=64, sharding=sharding)
        assert training_memory(shape, plan).states / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_fsdps_full_sharding_is_stage_three():
    shape = read_model(tiny_models.llama())
    one, other = (training_memory(shape, MemoryPlan(sharding=name, devices=8)) for name in ("fsdp_full", "zero3"))
    assert one == other


def test_fsdps_sharding_of_gradients_keeps_a_shard_and_whole_weights_to_compute_with():
    """With float32 weights in bfloat16: 4/n + 2 bytes of weights where ZeRO-2 has 4 and autocast's copies."""
    memory = training_memory(ModelShape.of_count(800), MemoryPlan(sharding="fsdp_grad_op", devices=8))
    assert (memory.weights, memory.gathered, memory.casts) == (400, 1600, 0)
    assert (memory.gradients, memory.optimizer) == (400, 800)
    assert memory.states == 800 * (4 / 8 + 4 / 8 + 8 / 8 + 2)


def test_stage_three_gathers_two_blocks():
    shape = read_model(tiny_models.llama(4))
    memory = training_memory(shape, MemoryPlan(sharding="zero3", devices=4))
    in_blocks = sum(product.weights for product in shape.products if product.in_block)
    assert memory.gathered == 2 * in_blocks / 4 * 2
    assert memory.casts == 0


def test_frozen_weights_have_no_gradient_and_no_moments():
    model = tiny_models.llama()
    for parameter in model.model.parameters():
        parameter.requires_grad = False
    memory = training_memory(read_model(model), MemoryPlan())
    head = 64 * tiny_models.WORDS
    assert (memory.gradients, memory.optimizer) == (head * 4, head * 8)
    assert memory.weights == sum(p.numel() for p in model.parameters()) * 4


@pytest.mark.parametrize("optimizer", OPTIMIZER_BYTES)
def test_optimizers(optimizer):
    memory = training_memory(ModelShape.of_count(100), MemoryPlan(optimizer=optimizer))
    assert memory.optimizer == 100 * OPTIMIZER_BYTES[optimizer]


def test_checkpointing_keeps_one_block_and_the_inputs_of_the_others():
    shape = read_model(tiny_models.llama(8))
    full, less = (
        training_memory(shape, MemoryPlan(batch_size=4, length=64, gradient_checkpointing=on)) for on in (False, True)
    )
    assert less.activations < 0.3 * full.activations
    assert less.activations == 4 * 64 * (8 * 64 * 4 + full.activations / (4 * 64 * 8))


def test_activations_grow_with_rows_and_length_and_without_fused_attention_faster():
    shape = read_model(tiny_models.llama())

    def activations(**plan):
        return training_memory(shape, MemoryPlan(**plan)).activations

    assert activations(batch_size=2, length=64) == 2 * activations(batch_size=1, length=64)
    assert activations(length=128) == 2 * activations(length=64)
    assert activations(length=128, fused_attention=False) > 2 * activations(length=64, fused_attention=False)


SEQ2SEQ = {"d_model": 128, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "vocab_size": tiny_models.WORDS}
UNDROPPED = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}


def bart(encoder, decoder, attention):
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    options = {**SEQ2SEQ, **UNDROPPED, **heads, "attn_implementation": attention, "eos_token_id": 2}
    config = BartConfig(encoder_layers=encoder, decoder_layers=decoder, **options)
    return BartForConditionalGeneration(config)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("targets", [LENGTH, LENGTH // 4])
def test_an_encoder_decoder_keeps_what_autograd_keeps(attention, targets):
    """Blocks of each side see their own side's tokens; a decoder's keep their look at the encoder too."""
    base = kept(bart(2, 2, attention), False, targets)
    measured = kept(bart(4, 2, attention), False, targets) + kept(bart(2, 4, attention), False, targets) - 2 * base
    plan = {"batch_size": ROWS, "length": LENGTH, "target_length": targets, "compute_bytes": 4}
    few, many = (
        training_memory(read_model(bart(layers, layers, attention)), MemoryPlan(**plan, fused_attention=fused))
        for layers, fused in ((2, attention == "sdpa"), (4, attention == "sdpa"))
    )
    assert many.activations - few.activations == pytest.approx(measured, rel=0.02)
    assert few.logits == ROWS * targets * tiny_models.WORDS * 12


def test_targets_are_as_long_as_the_input_by_default():
    shape = read_model(bart(1, 1, "sdpa"))
    assert training_memory(shape, MemoryPlan(length=64)) == training_memory(
        shape, MemoryPlan(length=64, target_length=64)
    )


def test_logits_are_counted_with_their_float32_copies():
    shape = read_model(tiny_models.llama())
    assert training_memory(shape, MemoryPlan(length=10)).logits == 10 * tiny_models.WORDS * 14
    assert training_memory(shape, MemoryPlan(length=10, compute_bytes=4)).logits == 10 * tiny_models.WORDS * 12
    assert training_memory(read_model(tiny_models.classifier()), MemoryPlan(length=10)).logits == 0


def test_without_widths_activations_are_unknown_never_zero():
    memory = training_memory(ModelShape.of_count(1e9), MemoryPlan())
    assert (memory.activations, memory.logits, memory.total) == (None, None, None)
    assert memory.states == 1e9 * (4 + 4 + 8 + 2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 0}, "batch_size=0; allowed are integers >= 1"),
        ({"length": 0}, "length=0"),
        ({"devices": 0}, "devices=0"),
        ({"target_length": 0}, "target_length=0"),
        ({"master_weights": True}, "master_weights=True with weight_bytes=4.*Set weight_bytes=2"),
        ({"weight_bytes": 3}, "weight_bytes=3; allowed: 4, or 2"),
        ({"optimizer": "adam"}, "optimizer='adam'; allowed: adamw"),
        ({"sharding": "zero4"}, "sharding='zero4'; allowed: none, zero1"),
    ],
)
def test_wrong_plans_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        MemoryPlan(**wrong)
