"""Tiny models and data sets; everything is seeded and needs no network."""

import numpy as np
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

VOCABULARY = 40


def bert(num_labels=2, dropout=0.0, seed=0, **options):
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        num_labels=num_labels,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **options,
    )
    return BertForSequenceClassification(config)


def llama(seed=0, **options):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **options,
    )
    return LlamaForCausalLM(config)


def gpt2(seed=0, **options):
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2
        )
    )


def rows(n=11, num_labels=2, low=3, high=14, seed=0):
    """Classification rows of unequal length."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        ids = rng.integers(3, VOCABULARY, rng.integers(low, high)).tolist()
        out.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": int(rng.integers(num_labels))})
    return out


def causal_rows(n=9, seed=0, low=2, high=14, masked=()):
    """Language model rows of unequal length; rows in ``masked`` have no target at all."""
    rng = np.random.default_rng(seed)
    out = []
    for k in range(n):
        ids = rng.integers(3, VOCABULARY, rng.integers(low, high)).tolist()
        labels = [-100] * len(ids) if k in masked else list(ids)
        out.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels})
    return out


class PaddingCollator:
    """Pads ids with 0, masks with 0 and token labels with -100, on either side and by any extra amount."""

    def __init__(self, side="right", extra=0):
        self.side, self.extra = side, extra

    def __call__(self, features):
        width = max(len(feature["input_ids"]) for feature in features) + self.extra
        batch = {}
        for key in features[0]:
            values = [feature[key] for feature in features]
            if isinstance(values[0], list):
                fill = -100 if key == "labels" else 0
                values = [self._pad(list(value), width, fill) for value in values]
            batch[key] = torch.tensor(values)
        return batch

    def _pad(self, value, width, fill):
        padding = [fill] * (width - len(value))
        return padding + value if self.side == "left" else value + padding


def quiet(folder, **options):
    """Arguments that print and report nothing and run on the CPU."""
    defaults = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "logging_steps": 1, "save_strategy": "no"}
    return {"output_dir": str(folder), **defaults, **options}
