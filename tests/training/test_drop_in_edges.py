"""Corners in which the stock Trainer works and ours must too."""

import itertools
import math

import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorWithFlattening, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny


def make(folder, trainer_class=PlusTrainer, *, eval_dataset=None, collator=None, callbacks=(), metric=None, **options):
    return trainer_class(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, **options)),
        train_dataset=tiny.rows(16),
        eval_dataset=tiny.rows(11) if eval_dataset is None else eval_dataset,
        data_collator=collator or tiny.PaddingCollator(),
        callbacks=list(callbacks),
        compute_metrics=metric,
    )


def test_a_pending_evaluation_of_the_last_step_is_made_on_resume(tmp_path):
    options = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True}
    options |= {"metric_for_best_model": "q", "greater_is_better": True}

    def broken(prediction):
        raise RuntimeError("x")

    with pytest.raises(RuntimeError, match="x"):
        make(tmp_path, metric=broken, **options).train()
    trainer = make(tmp_path, metric=lambda prediction: {"q": 1}, **options)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.best_global_step == 2
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-2")


def test_padding_free_batches_are_token_exact(tmp_path):
    rows = [{key: row[key] for key in ("input_ids", "labels")} for row in tiny.causal_rows(9)]
    losses = []
    for batch in (1, 4, 9):
        args = PlusTrainingArguments(**tiny.quiet(tmp_path, per_device_eval_batch_size=batch))
        trainer = PlusTrainer(tiny.llama(), args, eval_dataset=rows, data_collator=DataCollatorWithFlattening())
        losses.append(trainer.evaluate()["eval_loss"])
    assert losses[1:] == [pytest.approx(losses[0], abs=1e-5)] * 2


class Infinite(TrainerCallback, ExportableState):
    def __init__(self, best=math.inf):
        self.best = best
        self.seen = []

    def state(self):
        return {"args": {}, "attributes": {"best": self.best}}

    def on_step_end(self, args, state, control, **kwargs):
        assert self.best > 0


def test_other_callbacks_get_their_infinity_back(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 1, "restore_callback_states_from_checkpoint": True}
    make(tmp_path, callbacks=[Infinite()], max_steps=1, **options).train()
    resumed = make(tmp_path, callbacks=[Infinite()], max_steps=2, **options)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 2


def test_a_wrapped_loop_may_ask_its_loader(tmp_path):
    class Asks(Trainer):
        def evaluation_loop(self, dataloader, *args, **kwargs):
            before, size = len(dataloader), int(callable(dataloader.collate_fn))
            output = super().evaluation_loop(dataloader, *args, **kwargs)
            output.metrics["eval_asked"] = before * 1000 + size
            return output

    class PlusAsks(Asks, PlusTrainer):
        pass

    metrics = make(tmp_path, PlusAsks, per_device_eval_batch_size=4).evaluate()
    assert metrics["eval_asked"] == 3001


def test_a_sampler_of_their_own_is_used(tmp_path):
    class Three(Trainer):
        def _get_eval_sampler(self, eval_dataset):
            return torch.utils.data.SubsetRandomSampler([0, 1, 2])

    class PlusThree(Three, PlusTrainer):
        pass

    assert make(tmp_path, PlusThree).evaluate()["eval_examples"] == 3


def test_collator_and_rows_may_change_between_evaluations(tmp_path):
    rows = tiny.rows(5)
    trainer = make(tmp_path, eval_dataset=rows)
    first = trainer.evaluate()

    class Zeros(tiny.PaddingCollator):
        def __call__(self, features):
            batch = super().__call__(features)
            batch["input_ids"] = torch.zeros_like(batch["input_ids"])
            return batch

    trainer.data_collator = Zeros()
    assert trainer.evaluate()["eval_loss"] != first["eval_loss"]
    rows.extend(tiny.rows(4, seed=3))
    assert trainer.evaluate()["eval_examples"] == 9


def test_keys_of_sets_are_fit_for_trackers(tmp_path):
    trainer = make(tmp_path, eval_dataset={"eval_x": tiny.rows(4), "my set": tiny.rows(3)})
    keys = set(trainer.evaluate())
    assert {"eval_x_loss", "eval_my_set_loss"} <= keys
    assert not [key for key in keys if "eval_eval" in key or " " in key]
    make(tmp_path, eval_dataset={"eval_x": tiny.rows(4), "b": tiny.rows(3)}, metric_for_best_model="eval_x_loss")


def test_a_best_model_without_evaluations_is_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no best"):
        make(tmp_path, load_best_model_at_end=True)


def test_the_users_own_loss_has_no_interval_of_ours(tmp_path):
    metrics = make(tmp_path, metric=lambda prediction: {"loss": 1000.0, 1: 0.5}).evaluate()
    assert metrics["eval_loss"] == 1000.0
    assert "eval_loss_ci_low" not in metrics
    assert metrics["eval_1"] == 0.5


def test_plain_arguments_that_guess_a_direction_wrongly_are_named(tmp_path, caplog):
    args = TrainingArguments(**tiny.quiet(tmp_path, metric_for_best_model="perplexity"))
    PlusTrainer(tiny.bert(), args, eval_dataset=tiny.rows(3), data_collator=tiny.PaddingCollator())
    assert any("smaller values are better" in record.message for record in caplog.records)


def test_saves_of_failed_evaluations_are_told_to_callbacks(tmp_path):
    saved = []

    class Saves(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            saved.append(state.global_step)

    calls = iter([1, None, 1])

    def metric(prediction):
        return {"q": next(calls) + 0}

    options = {"max_steps": 3, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    make(tmp_path, callbacks=[Saves()], metric=metric, on_eval_error="continue", **options).train()
    assert saved == [1, 2, 3]


class ReturnsACycle(torch.utils.data.IterableDataset):
    def __iter__(self):
        return itertools.cycle(tiny.rows(3))


def test_a_stream_that_returns_a_cycle_needs_a_limit(tmp_path):
    with pytest.raises(ValueError, match="limit|eval_subset_size"):
        make(tmp_path, eval_dataset=ReturnsACycle()).evaluate()
    metrics = make(tmp_path, eval_dataset=ReturnsACycle(), eval_subset_size=7).evaluate()
    assert metrics["eval_examples"] == 7


def test_monitoring_is_switched_on_by_one_argument(tmp_path):
    trainer = make(tmp_path, gpu_monitor="0.05", max_steps=6, logging_steps=2)
    trainer.train()
    keys = {key for entry in trainer.state.log_history for key in entry}
    assert any("data_wait" in key for key in keys), sorted(keys)
    assert (tmp_path / "trainplus" / "step_clock.json").is_file()
    assert (tmp_path / "trainplus" / "diagnosis.json").is_file()


def test_a_budget_is_kept_by_one_argument(tmp_path):
    trainer = make(tmp_path, budget="max_steps=3", max_steps=10, save_strategy="steps", save_steps=100)
    trainer.train()
    assert trainer.state.global_step == 3
    assert (tmp_path / "checkpoint-3").is_dir()


@pytest.mark.parametrize("build", [list, Dataset.from_list])
def test_a_length_column_with_negative_numbers_is_no_error(tmp_path, build):
    rows = [{**row, "length": -3} for row in tiny.rows(11)]
    loss = make(tmp_path, eval_dataset=build(rows)).evaluate()["eval_loss"]
    assert loss == pytest.approx(make(tmp_path).evaluate()["eval_loss"], rel=1e-6)
