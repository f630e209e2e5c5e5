"""A language model that counts: the answer to a prompt that ends with t is t + 1, t + 2, ... up to the end."""

import torch
from torch import nn
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

PAD, END, VOCABULARY = 0, 20, 24


class CountingConfig(PretrainedConfig):
    model_type = "counting"


class CountingModel(PreTrainedModel, GenerationMixin):
    """Counts with certainty; ``on_forward`` is called in every forward pass, as a sharded model's collective is."""

    config_class = CountingConfig

    def __init__(self, config=None, on_forward=None):
        super().__init__(config or CountingConfig(vocab_size=VOCABULARY, use_cache=False))
        self.sharpness = nn.Parameter(torch.tensor(9.0))
        self.loss_type = "ForCausalLM"
        self.on_forward = on_forward
        self.shapes = []
        self.post_init()
        self.generation_config.update(pad_token_id=PAD, eos_token_id=END, use_cache=False)

    def forward(self, input_ids, attention_mask=None, labels=None, **_):
        self.shapes.append(tuple(input_ids.shape))
        if self.on_forward is not None:
            self.on_forward()
        logits = nn.functional.one_hot((input_ids + 1).clamp(max=END), VOCABULARY) * self.sharpness
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=VOCABULARY)
        return CausalLMOutput(loss=loss, logits=logits)


class WordDecoder:
    """Decodes ids to words, skips nothing, and refuses negative ids as a tokenizer of Rust does."""

    pad_token_id = PAD

    def batch_decode(self, sequences, skip_special_tokens=False):
        assert all(int(token) >= 0 for row in sequences for token in row), "a negative id reached the decoder"
        return [" ".join(str(int(token)) for token in row) for row in sequences]


def counting_rows(ends, wrong=()):
    """Rows whose prompt ends with ``ends[k]``; rows in ``wrong`` have a reference that the model does not give."""
    rows = []
    for k, end in enumerate(ends):
        prompt = list(range(1 + k % 3, end + 1))
        answer = list(range(end + 1, END + 1)) if k not in wrong else [22] * (END - end)
        ids = prompt + answer
        rows.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * len(prompt) + answer})
    return rows
