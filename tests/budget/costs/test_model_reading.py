"""Shapes from models, configurations and names, without weights."""

import pytest
import torch
from transformers import (
    BertConfig,
    CLIPConfig,
    DeepseekV3Config,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    MixtralConfig,
    T5Config,
    ViTConfig,
)

from hf_trainplus.budget.costs.model_reading import read_model
from hf_trainplus.budget.costs.model_shape import ModelShape
from tests.budget.costs import tiny_models

TINY = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 200}


def test_a_configuration_and_its_model_have_the_same_shape():
    model = tiny_models.llama()
    assert read_model(model.config) == read_model(model)


@pytest.mark.parametrize(("config", "billions"), [(GPT2Config(), 0.124), (LlamaConfig(), 6.738), (BertConfig(), 0.110)])
def test_known_models_have_their_known_sizes(config, billions):
    shape = read_model(config)
    assert shape.parameters / 1e9 == pytest.approx(billions, abs=0.001)


def test_mixtral_activates_thirteen_of_its_forty_seven_billion():
    shape = read_model(MixtralConfig())
    assert shape.parameters / 1e9 == pytest.approx(46.7, abs=0.1)
    # the published 12.9 counts the input embedding too, which is looked up and not multiplied
    embedding = 32_000 * 4096
    assert (shape.activated_parameters + embedding) / 1e9 == pytest.approx(12.9, abs=0.05)


def test_a_name_reads_only_the_configuration(tmp_path):
    LlamaConfig(num_hidden_layers=2, **TINY, architectures=["LlamaForCausalLM"]).save_pretrained(tmp_path)
    shape = read_model(str(tmp_path))
    assert shape.name == str(tmp_path)
    assert shape.attention[0].layers == 2


def test_the_class_that_the_configuration_names_is_built(tmp_path):
    config = BertConfig(num_hidden_layers=2, num_labels=5, architectures=["BertForSequenceClassification"], **TINY)
    sides = [product.side for product in read_model(config).products]
    assert sides.count("sequence") == 2


@pytest.mark.parametrize(
    ("config", "name"),
    [(BertConfig(**TINY), "BertForMaskedLM"), (GPT2Config(), "GPT2LMHeadModel"), (ViTConfig(), "ViTModel")],
)
def test_without_a_named_class_the_usual_one_is_built(config, name):
    assert read_model(config).name == name


def test_a_number_of_parameters_is_a_model_too():
    assert read_model(7e9) == ModelShape.of_count(7e9)
    assert "attention" in read_model(7e9).notes[0]
    shape = ModelShape.of_count(1e9)
    assert read_model(shape) is shape


def test_windows_and_hybrid_layers():
    mistral = read_model(MistralConfig(num_hidden_layers=2, sliding_window=64, num_key_value_heads=2, **TINY))
    assert [(group.layers, group.window) for group in mistral.attention] == [(2, 64)]
    gemma = read_model(Gemma2Config(num_hidden_layers=4, sliding_window=32, head_dim=16, num_key_value_heads=2, **TINY))
    assert sorted((group.layers, group.window) for group in gemma.attention if group.window) == [(2, 32)]
    assert sum(group.layers for group in gemma.attention) == 4


def test_latent_attention_has_two_widths():
    config = DeepseekV3Config(
        num_hidden_layers=2, first_k_dense_replace=1, n_routed_experts=8, moe_intermediate_size=16, **TINY
    )
    group = read_model(config).attention[0]
    assert group.width == 4 * (config.qk_nope_head_dim + config.qk_rope_head_dim)
    assert group.value_width == 4 * config.v_head_dim


def test_a_model_without_attention_says_so():
    shape = read_model(MambaConfig(hidden_size=64, num_hidden_layers=2, vocab_size=200, state_size=8))
    assert shape.attention == ()
    assert "no attention heads" in shape.notes[0]


def test_encoder_decoders_have_two_sides():
    shape = read_model(tiny_models.t5())
    assert shape.has_target_side
    assert [(group.queries, group.keys, group.layers) for group in shape.attention] == [
        ("input", "input", 2),
        ("target", "target", 3),
        ("target", "input", 3),
    ]


def test_quantized_weights_count_as_many_as_they_were():
    class Packed:
        quant_state = type("State", (), {"shape": torch.Size([64, 64])})

        def numel(self):
            return 64 * 64 // 2

    from hf_trainplus.budget.costs.model_reading import _numel

    assert _numel(Packed()) == 64 * 64
    assert _numel(torch.nn.Parameter(torch.zeros(3, 4))) == 12


def test_a_model_of_several_towers_is_refused():
    with pytest.raises(ValueError, match="CLIPConfig has several towers.*config.text_config"):
        read_model(CLIPConfig())


def test_a_name_that_is_not_there_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(ValueError, match="has no configuration that can be read.*--parameters 7e9"):
        read_model(str(tmp_path / "missing"))


@pytest.mark.parametrize("given", [None, [1], True])
def test_other_kinds_are_refused(given):
    with pytest.raises(TypeError, match="allowed: a number of parameters, a model, a configuration or a name"):
        read_model(given)


@pytest.mark.parametrize("given", [0, -7e9, float("nan")])
def test_sizes_are_above_zero(given):
    with pytest.raises(ValueError, match="allowed are numbers above 0"):
        read_model(given)


def test_nothing_is_allocated(monkeypatch):
    shape = read_model(LlamaConfig(num_hidden_layers=80, hidden_size=8192, intermediate_size=28672))
    assert shape.parameters > 6e10


def test_t5_reads_its_own_names():
    shape = read_model(T5Config(num_layers=2, d_model=64, d_ff=96, d_kv=16, num_heads=4, vocab_size=200))
    assert shape.sizes.feed_forward == 96
    assert shape.sizes.layers == 4
    assert shape.sizes.root_mean_square
