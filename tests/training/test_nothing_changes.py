"""Evaluation changes no bit of the training."""

import random

import numpy as np
import torch

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny


def noisy_metric(prediction):
    random.random()
    np.random.rand()
    torch.rand(1)
    return {"accuracy": 0.5}


def train(folder, **options):
    trainer = PlusTrainer(
        tiny.bert(dropout=0.2),
        PlusTrainingArguments(**tiny.quiet(folder, max_steps=10, learning_rate=1e-2, **options)),
        train_dataset=tiny.rows(16),
        eval_dataset=tiny.rows(7),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=noisy_metric,
    )
    trainer.train()
    return trainer


def test_weights_are_bit_equal_with_and_without_evaluation(tmp_path):
    without = train(tmp_path / "a").model.state_dict()
    with_evaluation = train(tmp_path / "b", eval_strategy="steps", eval_steps=2).model.state_dict()
    for name, value in without.items():
        assert torch.equal(value, with_evaluation[name]), name


def test_random_states_and_train_mode_are_put_back(tmp_path):
    trainer = train(tmp_path)
    trainer.model.train()
    before = (random.getstate(), np.random.get_state()[1].copy(), torch.random.get_rng_state())
    trainer.evaluate()
    trainer.predict(tiny.rows(4))
    assert trainer.model.training
    assert random.getstate() == before[0]
    assert (np.random.get_state()[1] == before[1]).all()
    assert torch.equal(torch.random.get_rng_state(), before[2])


def test_dataloader_workers_change_nothing(tmp_path):
    options = {"eval_strategy": "steps", "eval_steps": 5, "dataloader_num_workers": 1}
    without = train(tmp_path / "a", dataloader_num_workers=1).model.state_dict()
    with_evaluation = train(tmp_path / "b", **options).model.state_dict()
    for name, value in without.items():
        assert torch.equal(value, with_evaluation[name]), name
