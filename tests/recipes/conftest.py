"""Two classes that a model can tell apart, as files, and a tiny model on disk."""

import pytest

from tests.support.recipe_runs import example_rows, write_csv


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """A folder with train.csv (24 rows), validation.csv (7 rows) and test.csv (5 rows)."""
    folder, rows = tmp_path_factory.mktemp("tables"), example_rows(36)
    write_csv(folder / "train.csv", rows[:24])
    write_csv(folder / "validation.csv", rows[24:31])
    write_csv(folder / "test.csv", rows[31:])
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A BERT of one narrow layer without dropout, with its tokenizer, as a folder: ranks draw no random numbers."""
    from small_bert import train_tokenizer
    from transformers import BertConfig, BertForSequenceClassification, set_seed

    set_seed(0)
    folder = tmp_path_factory.mktemp("tiny_model")
    tokenizer = train_tokenizer([text for text, _ in example_rows(36)], vocab_size=80, max_length=32)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
