"""One tiny seeded model for every kind of loss, with a batch for it."""

import torch
import transformers as tf

VOCABULARY = 50
LENGTH = 9
_BERT = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 16}
_BART = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
_IDS = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def bert_config(**options):
    return tf.BertConfig(**_BERT, **_IDS, **options)


def build(cls, config):
    torch.manual_seed(0)
    model = cls(config).eval()
    # Weights of a model fresh from its configuration are so small that wrong formulas look right.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    return model


def gpt2(**options):
    return build(tf.GPT2LMHeadModel, tf.GPT2Config(n_layer=1, n_head=2, n_embd=16, n_positions=64, **_IDS, **options))


def llama(**options):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return build(tf.LlamaForCausalLM, tf.LlamaConfig(**sizes, **_IDS, **options))


def bert_decoder():
    return build(tf.BertLMHeadModel, bert_config(is_decoder=True))


def bert(cls, **options):
    return build(cls, bert_config(**options))


def t5():
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": VOCABULARY}
    return build(tf.T5ForConditionalGeneration, tf.T5Config(**sizes, decoder_start_token_id=0))


def bart(cls=tf.BartForConditionalGeneration, **options):
    return build(cls, tf.BartConfig(**_BART, **_IDS, **options))


def encoder_decoder():
    decoder = bert_config(is_decoder=True, add_cross_attention=True)
    config = tf.EncoderDecoderConfig.from_encoder_decoder_configs(bert_config(), decoder)
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    return build(tf.EncoderDecoderModel, config)


def xlnet():
    return build(tf.XLNetLMHeadModel, tf.XLNetConfig(d_model=16, n_layer=1, n_head=2, d_inner=16, **_IDS))


def gpt2_classifier():
    config = tf.GPT2Config(n_layer=1, n_head=2, n_embd=16, n_positions=64, num_labels=3, **_IDS)
    return build(tf.GPT2ForSequenceClassification, config)


def vit():
    config = tf.ViTConfig(**_BERT, image_size=8, patch_size=4, num_labels=3)
    return build(tf.ViTForImageClassification, config)


def token_ids(rows, seed=1):
    return torch.randint(3, VOCABULARY, (rows, LENGTH), generator=torch.Generator().manual_seed(seed))


def token_batch(rows):
    """Rows whose labels are masked in different places, none of them wholly."""
    ids = token_ids(rows)
    labels = ids.clone()
    labels[0, 6:] = -100
    if rows > 2:
        labels[1, :4] = -100
        labels[2, ::2] = -100
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def row_batch(labels):
    return lambda rows: {"input_ids": token_ids(rows), "labels": labels(rows)}


def span_batch(rows):
    start = torch.arange(rows) % 4
    return {"input_ids": token_ids(rows), "start_positions": start, "end_positions": start + 2}


def choice_batch(rows):
    return {"input_ids": token_ids(3 * rows).reshape(rows, 3, LENGTH), "labels": torch.arange(rows) % 3}


def image_batch(rows):
    pixels = torch.randn(rows, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return {"pixel_values": pixels, "labels": torch.arange(rows) % 3}


def classes(rows):
    return torch.arange(rows) % 3


def real(*shape):
    return lambda rows: torch.rand(rows, *shape, generator=torch.Generator().manual_seed(2)) * 3


def bits(rows):
    return (real(3)(rows) > 1.5).float()


SEQUENCE = tf.BertForSequenceClassification

# name -> (loss kind, model, batch of n rows, targets a row where every row has as many)
CASES = {
    "gpt2": ("causal_lm", gpt2, token_batch, None),
    "llama": ("causal_lm", llama, token_batch, None),
    "bert_decoder": ("causal_lm", bert_decoder, token_batch, None),
    "bart_decoder": ("unshifted_lm", lambda: bart(tf.BartForCausalLM), token_batch, None),
    "xlnet": ("unshifted_lm", xlnet, token_batch, None),
    "masked_lm": ("masked_lm", lambda: bert(tf.BertForMaskedLM), token_batch, None),
    "t5": ("seq2seq", t5, token_batch, None),
    "bart": ("seq2seq", bart, token_batch, None),
    "encoder_decoder": ("seq2seq", encoder_decoder, token_batch, None),
    "tagger": (
        "token_classification",
        lambda: bert(tf.BertForTokenClassification, num_labels=VOCABULARY),
        token_batch,
        None,
    ),
    "single_label": ("sequence_classification", lambda: bert(SEQUENCE, num_labels=3), row_batch(classes), 1),
    "decoder_classifier": ("sequence_classification", gpt2_classifier, row_batch(classes), 1),
    "multi_label": ("sequence_classification", lambda: bert(SEQUENCE, num_labels=3), row_batch(bits), 3),
    "regression": ("sequence_classification", lambda: bert(SEQUENCE, num_labels=1), row_batch(real()), 1),
    "regression_column": ("sequence_classification", lambda: bert(SEQUENCE, num_labels=1), row_batch(real(1)), 1),
    "regression_integers": ("sequence_classification", lambda: bert(SEQUENCE, num_labels=1), row_batch(classes), 1),
    "regression_of_three": (
        "sequence_classification",
        lambda: bert(SEQUENCE, num_labels=3, problem_type="regression"),
        row_batch(real(3)),
        3,
    ),
    "images": ("sequence_classification", vit, image_batch, 1),
    "spans": ("question_answering", lambda: bert(tf.BertForQuestionAnswering), span_batch, 2),
    "spans_of_bart": ("question_answering", lambda: bart(tf.BartForQuestionAnswering), span_batch, 2),
    "choices": ("single_label_classification", lambda: bert(tf.BertForMultipleChoice), choice_batch, 1),
    "next_sentence": (
        "single_label_classification",
        lambda: bert(tf.BertForNextSentencePrediction),
        row_batch(lambda rows: torch.arange(rows) % 2),
        1,
    ),
}
