"""The small model: a tokenizer that two processes train alike, and a BERT that fits it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import small_bert as module
import torch
from small_bert import small_bert, train_tokenizer
from transformers import AutoTokenizer

TEXTS = ["Return the mean of an array.", "Raise an error when the array is empty.", "Plot a graph of the nodes."] * 5


def test_ids_are_the_same_in_every_process():
    code = "from small_bert import train_tokenizer\nprint(sorted(train_tokenizer({!r}, vocab_size=120).get_vocab().items()))"
    environment = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parent)}
    printed = {
        subprocess.run(
            [sys.executable, "-c", code.format(TEXTS)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=200,
        ).stdout
        for _ in range(2)
    }
    assert printed == {f"{sorted(train_tokenizer(TEXTS, vocab_size=120).get_vocab().items())}\n"}


def test_special_tokens_come_first_and_frame_each_text():
    tokenizer = train_tokenizer(TEXTS, vocab_size=120, max_length=6)
    assert tokenizer.convert_ids_to_tokens(range(5)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert tokenizer.convert_ids_to_tokens(tokenizer("array")["input_ids"]) == ["[CLS]", "array", "[SEP]"]
    assert len(tokenizer("the array is empty when the array is empty", truncation=True)["input_ids"]) == 6
    assert len(tokenizer) <= 120


def test_it_is_saved_and_loaded_like_any_tokenizer(tmp_path):
    tokenizer = train_tokenizer(TEXTS, vocab_size=120, max_length=32)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded(TEXTS)["input_ids"] == tokenizer(TEXTS)["input_ids"]
    assert (loaded.model_max_length, loaded.pad_token_id) == (32, 0)


def test_the_model_fits_its_tokenizer_and_labels():
    tokenizer = train_tokenizer(TEXTS, vocab_size=120, max_length=32)
    model = small_bert(tokenizer, ["a", "b", "c"], width=64)
    batch = tokenizer(["x " * 100, "array"], truncation=True, padding=True, return_tensors="pt")
    assert batch["input_ids"].shape == (2, 32)
    with torch.no_grad():
        assert model(**batch).logits.shape == (2, 3)
    assert model.config.id2label == {0: "a", 1: "b", 2: "c"}
    assert model.config.label2id == {"a": 0, "b": 1, "c": 2}


def test_padding_changes_no_prediction():
    tokenizer = train_tokenizer(TEXTS, vocab_size=120, max_length=32)
    model = small_bert(tokenizer, ["a", "b"], width=64).eval()
    with torch.no_grad():
        alone = model(**tokenizer(["the array"], return_tensors="pt")).logits[0]
        padded = model(**tokenizer(["the array", TEXTS[1]], padding=True, return_tensors="pt")).logits[0]
    torch.testing.assert_close(alone, padded, atol=1e-5, rtol=0)


def test_the_documented_size_is_the_size():
    tokenizer = train_tokenizer(TEXTS, vocab_size=120)
    tokenizer.add_tokens([f"token{i}" for i in range(8000 - len(tokenizer))])
    assert small_bert(tokenizer, ["a", "b"]).num_parameters() == pytest.approx(1.5e6, rel=0.05)
