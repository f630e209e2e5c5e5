"""Rows that draw random numbers are seen and named; others say nothing."""

import random

import numpy as np
import pytest
import torch

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny


class Drawing(tiny.PaddingCollator):
    """Draws from one of the process's random states for each batch."""

    def __init__(self, draw=lambda: None):
        super().__init__()
        self.draw = draw

    def __call__(self, features):
        self.draw()
        return super().__call__(features)


class Seeded(tiny.PaddingCollator):
    def __init__(self):
        super().__init__()
        self.seed, self.generator = 1, torch.Generator()


def train(folder, collator, **options):
    arguments = {"max_steps": 4, "per_device_train_batch_size": 2, "save_strategy": "steps", "save_steps": 9, **options}
    trainer = PlusTrainer(
        tiny.bert(dropout=0.1),
        PlusTrainingArguments(**tiny.quiet(folder, **arguments)),
        train_dataset=tiny.rows(20),
        data_collator=collator,
    )
    trainer.train()
    return trainer._random_data.found


@pytest.fixture
def told(caplog):
    return lambda: [record.getMessage() for record in caplog.records if "sees other draws" in record.getMessage()]


DRAWS = {
    "python": random.random,
    "numpy": lambda: np.random.rand(),
    "torch": lambda: torch.rand(1),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("accumulation", [1, 2])
def test_draws_are_named_once(name, accumulation, tmp_path, told):
    found = train(tmp_path, Drawing(DRAWS[name]), gradient_accumulation_steps=accumulation)
    assert found == "fetching training rows (list, collated by Drawing) draws from the process's random states"
    assert len(told()) == 1
    assert "seed that depends on the row" in told()[0]


def test_a_generator_that_runs_on_is_named(tmp_path, told):
    assert "collated by Seeded) draws from a generator" in train(tmp_path, Seeded())
    assert len(told()) == 1


def test_other_data_say_nothing(tmp_path, told):
    assert train(tmp_path, Drawing()) is None
    assert told() == []


def test_a_run_without_checkpoints_has_nothing_to_fear(tmp_path, told):
    assert train(tmp_path, Drawing(random.random), save_strategy="no") is not None
    assert told() == []
