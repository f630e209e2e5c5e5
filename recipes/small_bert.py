"""A classifier without a download: a WordPiece tokenizer trained on the spot, a two-layer BERT from its config."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

_SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def train_tokenizer(texts: Iterable[str], *, vocab_size: int = 8000, max_length: int = 128) -> PreTrainedTokenizerFast:
    """Train a lower-casing WordPiece tokenizer with BERT's special tokens; the same texts give the same ids.

    Pieces carry no mark of where a word begins, so a text cannot be rebuilt from its ids.

    Args:
        texts: the training texts; validation and test must not shape the vocabulary.
        vocab_size: largest number of tokens, special ones included.
        max_length: number of tokens that a text is cut to, special ones included.

    Returns:
        A tokenizer that ``save_pretrained`` writes and ``AutoTokenizer`` reads.

    Example:
        >>> tokenizer = train_tokenizer(["the cat sat", "the mat"], vocab_size=60)
        >>> tokenizer.convert_ids_to_tokens(tokenizer("The cat")["input_ids"])
        ['[CLS]', 'the', 'cat', '[SEP]']
    """
    # with BERT's "##" before the inner pieces, training breaks ties by chance, and two ranks would see two vocabularies
    tokenizer = Tokenizer(models.WordPiece(unk_token=_SPECIAL["unk_token"], continuing_subword_prefix=""))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=list(_SPECIAL.values()),
        continuing_subword_prefix="",
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    cls, sep = ((token, tokenizer.token_to_id(token)) for token in (_SPECIAL["cls_token"], _SPECIAL["sep_token"]))
    tokenizer.post_processor = processors.BertProcessing(sep, cls)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=max_length, **_SPECIAL)


def small_bert(
    tokenizer: PreTrainedTokenizerFast, label_names: Sequence[str], *, layers: int = 2, width: int = 128
) -> BertForSequenceClassification:
    """Build a BERT of two layers with random weights: 1.5 million parameters at 8,000 tokens.

    Args:
        tokenizer: gives the vocabulary, the padding token and the longest text.
        label_names: the classes, in the order of their ids.
        layers: number of transformer layers, >= 1.
        width: hidden size, a multiple of 64.

    Example:
        >>> model = small_bert(train_tokenizer(["a b c"], vocab_size=40), ["no", "yes"])
        >>> model.config.num_hidden_layers, model.config.id2label
        (2, {0: 'no', 1: 'yes'})
    """
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        max_position_embeddings=tokenizer.model_max_length,
        pad_token_id=tokenizer.pad_token_id,
        id2label=dict(enumerate(label_names)),
        label2id={name: i for i, name in enumerate(label_names)},
    )
    return BertForSequenceClassification(config)
