"""Generation in evaluation: what is scored, and that nothing else changes."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from tests.support import tiny
from tests.support.counting_model import END, PAD, counting_rows
from tests.support.generation import ENDS, Recorder, completion_rows, counting, exact_match, sampling_llama
from tests.training.test_other_trainers import word_tokenizer


def test_only_generated_ids_are_scored_and_the_loss_stays_teacher_forced(tmp_path):
    forced = counting(tmp_path, None, predict_with_generate=False).evaluate()
    metrics = counting(tmp_path, [exact_match(), load_metric("perplexity")]).evaluate()
    for key in ("eval_loss", "eval_targets", "eval_examples", "eval_loss_ci_low"):
        assert metrics[key] == pytest.approx(forced[key], abs=1e-6)
    assert metrics["eval_exact_match"] == 6 / 8
    assert metrics["eval_generation_examples"] == 8
    assert metrics["eval_perplexity"] == pytest.approx(np.exp(forced["eval_loss"]))


def test_the_log_says_which_metric_was_generated(tmp_path):
    metrics = counting(tmp_path, [exact_match(), Recorder(own=0.5), load_metric("perplexity")]).evaluate()
    marks = {key: value for key, value in metrics.items() if key.endswith("_generated")}
    assert marks == {
        "eval_exact_match_generated": 1.0,
        "eval_own_generated": 1.0,
        "eval_loss_generated": 0.0,
        "eval_perplexity_generated": 0.0,
    }
    forced = counting(tmp_path, None, predict_with_generate=False).evaluate()
    assert not [key for key in forced if "generat" in key]


def test_a_function_is_given_generated_ids_without_a_negative_one(tmp_path):
    recorder = Recorder()
    counting(tmp_path, recorder, include_for_metrics=["inputs", "loss"]).evaluate()
    seen = recorder.seen[0]
    assert [row[row != PAD].tolist() for row in seen.predictions] == [list(range(end + 1, END + 1)) for end in ENDS]
    assert seen.predictions.min() == PAD
    assert [row[row != -100].tolist() for row in seen.label_ids] == [
        row["labels"][row["labels"].index(next(x for x in row["labels"] if x != -100)) :]
        for row in counting_rows(ENDS, wrong=[1, 2])
    ]
    assert seen.inputs.min() == PAD
    assert seen.losses.shape == (8,)
    assert seen.losses[1] > seen.losses[0]


def test_a_function_cannot_take_the_place_of_the_loss(tmp_path):
    metrics = counting(tmp_path, Recorder(loss=123.0, own=1.0)).evaluate()
    assert metrics["eval_loss"] < 10
    assert metrics["eval_loss_generated"] == 0.0


def test_predict_hands_back_what_was_generated_for_every_row(tmp_path):
    trainer = counting(tmp_path, exact_match(), generation_eval_size=2)
    rows = counting_rows(ENDS)
    output = trainer.predict(rows)
    assert [row[row != PAD].tolist() for row in output.predictions] == [list(range(end + 1, END + 1)) for end in ENDS]
    assert output.metrics["test_exact_match"] == 1.0
    assert output.metrics["test_loss_generated"] == 0.0
    bare = trainer.predict([{k: v for k, v in row.items() if k != "labels"} for row in rows[:1]])
    assert bare.predictions.shape[1] == 1, "without labels all of the row is its prompt"
    assert bare.label_ids is None


def test_a_prompt_column_is_read_although_the_model_does_not_take_it(tmp_path):
    rows = [
        {**row, "labels": row["input_ids"], "prompt_input_ids": row["input_ids"][: 1 + k % 2], "note": "x"}
        for k, row in enumerate(counting_rows(ENDS))
    ]
    for data in (rows, Dataset.from_list(rows), Dataset.from_list(rows).to_iterable_dataset()):
        recorder = Recorder()
        counting(tmp_path, recorder, data).evaluate()
        firsts = [int(row[0]) for row in recorder.seen[0].predictions]
        assert firsts == [row["prompt_input_ids"][-1] + 1 for row in rows]


def test_labels_from_the_first_token_on_name_the_fix(tmp_path):
    rows = [{**row, "labels": row["input_ids"]} for row in counting_rows(ENDS)]
    with pytest.raises(ValueError, match=r"row \d has no prompt.*completion-only labels"):
        counting(tmp_path, exact_match(), rows).evaluate()


def test_no_tokenizer_is_touched(tmp_path):
    tokenizer, model = word_tokenizer(), tiny.llama()
    before = {key: value for key, value in vars(tokenizer).items() if not key.startswith("_tokenizer")}
    backend, config = tokenizer.backend_tokenizer.to_str(), model.generation_config.to_dict()
    trainer = counting(tmp_path, load_metric("rouge"), completion_rows(), model)
    trainer.processing_class = tokenizer
    assert "eval_rougeL" in trainer.evaluate()
    assert {key: value for key, value in vars(tokenizer).items() if not key.startswith("_tokenizer")} == before
    assert tokenizer.backend_tokenizer.to_str() == backend
    assert model.generation_config.to_dict() == config


# ---- nothing else changes ----
def test_a_sampled_text_depends_on_the_row_alone(tmp_path):
    texts = []
    for batch, size in ((1, None), (7, None), (2, 4)):
        recorder = Recorder()
        options = {"per_device_eval_batch_size": batch, "generation_eval_size": size, "generation_max_new_tokens": 6}
        counting(tmp_path, recorder, completion_rows(), sampling_llama(), **options).evaluate()
        texts.append({tuple(label): row.tolist() for label, row in zip(*_pairs(recorder), strict=True)})
    assert texts[0] == texts[1]
    assert texts[2].items() <= texts[0].items()
    assert len(texts[2]) == 4


def _pairs(recorder):
    seen = recorder.seen[0]
    return [label[label != -100].tolist() for label in seen.label_ids], seen.predictions


def test_training_is_bit_equal_with_sampled_generation(tmp_path):
    weights = []
    for generates in (False, True):
        options = {"max_steps": 3, "eval_strategy": "steps", "eval_steps": 1, "predict_with_generate": generates}
        model = sampling_llama()
        model.config.attention_dropout = 0.3
        metric = Recorder() if generates else None
        trainer = counting(tmp_path, metric, completion_rows(), model, generation_max_new_tokens=4, **options)
        trainer.train()
        weights.append([value.clone() for value in trainer.model.state_dict().values()])
    assert all(map(torch.equal, *weights))


def test_an_error_of_generation_keeps_the_run(tmp_path):
    def broken(prediction):
        raise RuntimeError("no")

    options = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 1, "on_eval_error": "continue"}
    trainer = counting(tmp_path, broken, **options)
    trainer.train()
    assert trainer.state.global_step == 2


def test_callbacks_are_told_of_every_batch(tmp_path):
    class Steps(TrainerCallback):
        count = 0

        def on_prediction_step(self, *args, **kwargs):
            self.count += 1

    trainer, steps = counting(tmp_path, exact_match(), per_device_eval_batch_size=4), Steps()
    trainer.add_callback(steps)
    trainer.evaluate()
    batches = steps.count
    trainer.evaluate()
    assert batches == steps.count - batches >= 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_an_sft_trainer_generates_from_the_prompts_of_its_rows(tmp_path):
    from trl import SFTConfig, SFTTrainer

    class PlusSFTTrainer(SFTTrainer, PlusTrainer):
        pass

    @dataclass
    class Args(SFTConfig, PlusTrainingArguments):
        pass

    data = Dataset.from_list(
        [{"prompt": " ".join(f"w{4 + j}" for j in range(2 + k)), "completion": f" w{20 + k} w9"} for k in range(5)]
    )
    options = {"per_device_eval_batch_size": 2, "bf16": False, "gradient_checkpointing": False, "max_steps": 2}
    generation = {"predict_with_generate": True, "generation_max_new_tokens": 4, "eval_strategy": "steps"}
    recorder, tokenizer = Recorder(own=1.0), word_tokenizer()
    trainer = PlusSFTTrainer(
        model=tiny.llama(),
        args=Args(**tiny.quiet(tmp_path, **options, **generation, eval_steps=1)),
        train_dataset=data,
        eval_dataset=data,
        processing_class=tokenizer,
        compute_metrics=[recorder, load_metric("rouge")],
    )
    trainer.train()
    assert len(recorder.seen) == 2
    references = [[token for token in row if token >= 0] for row in recorder.seen[0].label_ids.tolist()]
    assert tokenizer.batch_decode(references, skip_special_tokens=True) == [f"w{20 + k} w9" for k in range(5)]
    assert recorder.seen[0].predictions.shape[1] <= 4
    entry = next(entry for entry in trainer.state.log_history if "eval_loss" in entry)
    assert {"eval_rougeL", "eval_rougeL_generated", "eval_mean_token_accuracy"} <= set(entry)
