"""A race whose watched metric is one of generated ids generates for the rows that it reads, and no others."""

import numpy as np
import pytest
import torch

from hf_trainplus import (
    PlusSeq2SeqTrainer,
    PlusSeq2SeqTrainingArguments,
    PlusTrainer,
    PlusTrainingArguments,
    load_metric,
)
from hf_trainplus.training.racing.session import RaceLimits
from tests.support import tiny
from tests.support.counting_model import WordDecoder
from tests.training.test_outputs_and_labels import SequenceCollator, t5

END = 1  # of an answer


def answers(n, seed, *, decoder_only):
    """The answer to a prompt is its last word, twice, and the end."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        prompt = rng.integers(2, 12, rng.integers(2, 5)).tolist()
        answer = [prompt[-1], prompt[-1], END]
        ids = prompt + answer if decoder_only else prompt
        labels = [-100] * len(prompt) + answer if decoder_only else answer
        yield {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def make(folder, mode, metric="exact_match", *, decoder_only=True, **options):
    model = tiny.llama() if decoder_only else t5()
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = END, 0
    kinds = (PlusTrainer, PlusTrainingArguments) if decoder_only else (PlusSeq2SeqTrainer, PlusSeq2SeqTrainingArguments)
    arguments = {
        "max_steps": 40,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": 16,
        "per_device_eval_batch_size": 50,
        "eval_strategy": "steps",
        "eval_steps": 4,
        "save_strategy": "best",
        "load_best_model_at_end": True,
        "metric_for_best_model": metric,
        "greater_is_better": metric != "wer",
        "predict_with_generate": True,
        "generation_max_new_tokens": 4,
        "eval_mode": mode,
        **options,
    }
    trainer = kinds[0](
        model,
        kinds[1](**tiny.quiet(folder, **arguments)),
        train_dataset=list(answers(400, 0, decoder_only=decoder_only)),
        eval_dataset=list(answers(240, 1, decoder_only=decoder_only)),
        data_collator=tiny.PaddingCollator() if decoder_only else SequenceCollator(),
        compute_metrics=load_metric(metric, tokenizer=WordDecoder()),
    )
    trainer._scheduled.race.limits = RaceLimits(min_rows=100, min_seconds=0.0)
    return trainer


def finished(trainer):
    trainer.train()
    return trainer


def logged(trainer, key):
    return [entry for entry in trainer.state.log_history if key in entry and "eval_best_step" not in entry]


@pytest.mark.parametrize("decoder_only", [True, False], ids=["llama", "t5"])
@pytest.mark.parametrize("metric", ["exact_match", "wer"])
def test_the_same_best_from_fewer_generated_rows(metric, decoder_only, tmp_path):
    full = finished(make(tmp_path / "full", "full", metric, decoder_only=decoder_only))
    race = finished(make(tmp_path / "race", "race", metric, decoder_only=decoder_only))
    key = f"eval_{metric}"
    values = [entry[key] for entry in logged(full, key)]
    assert len(set(values)) > 3
    assert race.state.best_global_step == full.state.best_global_step
    assert race.state.best_metric == pytest.approx(full.state.best_metric, abs=1e-9)
    first = logged(race, key)[0]
    assert first["eval_generation_examples"] < 240
    assert (first[f"{key}_generated"], first["eval_loss_generated"], first[f"{key}_exact"]) == (1.0, 0.0, 0.0)
    assert race._scheduled.race.session.race.cost < 1
    for name, value in full.model.state_dict().items():
        assert torch.equal(value, race.model.state_dict()[name])


@pytest.mark.parametrize("option", [{"generation_eval_steps": 8}, {"generation_eval_size": 100}])
def test_what_leaves_the_metric_out_is_not_raced(option, tmp_path, caplog):
    trainer = finished(make(tmp_path, "race", max_steps=8, **option))
    assert "evaluates every row here" in caplog.text
    assert f"{next(iter(option))}=" in caplog.text
    assert logged(trainer, "eval_loss")[0]["eval_examples"] == 240


def test_a_raced_loss_leaves_generation_to_its_own_rhythm(tmp_path):
    trainer = finished(make(tmp_path, "race", max_steps=8, metric_for_best_model="loss", greater_is_better=False))
    first = logged(trainer, "eval_exact_match")[0]
    assert (first["eval_generation_examples"], first["eval_examples"] < 240) == (240, True)
