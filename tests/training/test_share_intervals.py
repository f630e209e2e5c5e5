"""Intervals of shares of counts stay between 0 and 1."""

from __future__ import annotations

import pytest

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from tests.support import tiny


@pytest.mark.parametrize("seed", range(3))
def test_token_accuracy_of_an_untrained_model(seed, tmp_path):
    rows = tiny.causal_rows(23, low=3, high=30)
    trainer = PlusTrainer(
        tiny.llama(),
        PlusTrainingArguments(**tiny.quiet(tmp_path)),
        data_collator=tiny.PaddingCollator(),
        eval_dataset=[dict(row, labels=[(label + seed) % 40 for label in row["labels"]]) for row in rows],
        compute_metrics=load_metric("token_accuracy", shift=True),
    )
    found = trainer.evaluate()
    value = found["eval_token_accuracy"]
    assert 0 < value < 0.1
    assert 0 < found["eval_token_accuracy_ci_low"] < value < found["eval_token_accuracy_ci_high"] < 1
