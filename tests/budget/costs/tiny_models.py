"""Tiny models from configurations, for holding formulas against what PyTorch counts."""

import torch
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LEDConfig,
    LEDForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
    LongformerConfig,
    LongformerForSequenceClassification,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    SwitchTransformersConfig,
    SwitchTransformersForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

ROWS, LENGTH, TARGET = 2, 48, 20
WORDS = 200


def llama(layers=3, **changes):
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
    options = {**sizes, "vocab_size": WORDS, "attn_implementation": "eager", **changes}
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=layers, **options))


def gpt2(layers=3, **changes):
    options = {"n_embd": 64, "n_head": 4, "vocab_size": WORDS, "attn_implementation": "eager", **changes}
    return GPT2LMHeadModel(GPT2Config(n_layer=layers, bos_token_id=0, eos_token_id=0, **options))


def bert(kind=BertForMaskedLM, layers=3, **changes):
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": WORDS}
    return kind(BertConfig(num_hidden_layers=layers, **{**sizes, "attn_implementation": "eager", **changes}))


def classifier():
    return bert(BertForSequenceClassification)


def t5():
    sizes = {"d_model": 64, "d_ff": 96, "d_kv": 16, "num_heads": 4, "vocab_size": WORDS, "decoder_start_token_id": 0}
    return T5ForConditionalGeneration(T5Config(num_layers=2, num_decoder_layers=3, **sizes))


def bart():
    sizes = {"encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    options = {**sizes, "d_model": 64, "vocab_size": WORDS, "attn_implementation": "eager", "eos_token_id": 2}
    return BartForConditionalGeneration(BartConfig(encoder_layers=2, decoder_layers=2, **options))


def albert():
    """Four layers of two groups."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "embedding_size": 32}
    options = {**sizes, "vocab_size": WORDS, "attn_implementation": "eager", "num_hidden_groups": 2}
    return AlbertForMaskedLM(AlbertConfig(num_hidden_layers=4, **options))


MOE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
EAGER = {"vocab_size": WORDS, "attn_implementation": "eager", "experts_implementation": "eager"}


def mixtral():
    options = {**MOE, **EAGER, "num_local_experts": 4, "num_experts_per_tok": 2}
    return MixtralForCausalLM(MixtralConfig(num_hidden_layers=2, **options))


def qwen2_moe():
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    options = {**MOE, **EAGER, **experts, "shared_expert_intermediate_size": 48}
    return Qwen2MoeForCausalLM(Qwen2MoeConfig(num_hidden_layers=2, **options))


def switch():
    """Every second layer has experts, of which a token goes through one."""
    sizes = {"d_model": 64, "d_ff": 96, "d_kv": 16, "num_heads": 4, "vocab_size": WORDS, "decoder_start_token_id": 0}
    experts = {"num_experts": 4, "expert_capacity": ROWS * LENGTH}
    options = {**sizes, **experts, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}
    return SwitchTransformersForConditionalGeneration(
        SwitchTransformersConfig(num_layers=2, num_decoder_layers=2, **options)
    )


WINDOW = 16


def longformer():
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": WORDS}
    options = {**sizes, "attention_window": WINDOW, "pad_token_id": 1}
    return LongformerForSequenceClassification(LongformerConfig(num_hidden_layers=2, **options))


def led():
    sizes = {"encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    options = {**sizes, "d_model": 64, "vocab_size": WORDS, "attention_window": WINDOW}
    return LEDForConditionalGeneration(LEDConfig(encoder_layers=2, decoder_layers=2, **options))


def inputs(model):
    """A batch with labels of the right kind, and one global token for models that have such."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, WORDS, (ROWS, LENGTH), generator=generator)
    if isinstance(model, LEDForConditionalGeneration):
        looks = torch.zeros_like(ids)
        looks[:, 0] = 1
        labels = torch.randint(3, WORDS, (ROWS, TARGET), generator=generator)
        return {"input_ids": ids, "labels": labels, "global_attention_mask": looks}
    if model.config.is_encoder_decoder:
        return {"input_ids": ids, "labels": torch.randint(3, WORDS, (ROWS, TARGET), generator=generator)}
    if "SequenceClassification" in type(model).__name__:
        return {"input_ids": ids, "labels": torch.zeros(ROWS, dtype=torch.long)}
    return {"input_ids": ids, "labels": ids}
