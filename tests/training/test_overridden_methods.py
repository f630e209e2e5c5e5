"""Methods of Trainer that somebody overrides decide in an evaluation as they do in upstream's, cache or not."""

import pytest
import torch
from datasets import Dataset
from transformers import Trainer, TrainingArguments

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from tests.support import tiny
from tests.support.cached_runs import Logs, evaluated, files, make


@pytest.fixture
def logs(monkeypatch):
    return Logs(monkeypatch)


def half(trainer):
    return torch.autocast("cpu", dtype=torch.bfloat16)


def clamped(trainer, inputs):
    return {**Trainer._prepare_inputs(trainer, inputs), "input_ids": inputs["input_ids"].clamp(max=10)}


def clamped_tensor(trainer, data):
    data = Trainer._prepare_input(trainer, data)
    return data.clamp(max=10) if isinstance(data, torch.Tensor) else data


def shortened(trainer, dataset, description=None):
    return Dataset.from_list([{**row, "input_ids": row["input_ids"][:2], "attention_mask": [1, 1]} for row in dataset])


def wrapped(trainer, model, *args, **kwargs):
    return Trainer._wrap_model(trainer, model, *args, **kwargs)


OVERRIDES = {
    "compute_loss_context_manager": half,
    "autocast_smart_context_manager": half,
    "_prepare_inputs": clamped,
    "_prepare_input": clamped_tensor,
    "_remove_unused_columns": shortened,
    "_wrap_model": wrapped,
}


@pytest.mark.parametrize("on_the_trainer", [False, True])
@pytest.mark.parametrize("name", OVERRIDES)
def test_nothing_is_taken_from_the_cache_or_put_there(tmp_path, name, on_the_trainer, logs):
    def build(cls=PlusTrainer, **options):
        model = tiny.bert()
        torch.nn.init.normal_(model.classifier.weight, std=3)
        return make(tmp_path, trainer=cls, model=model, rows=Dataset.from_list(tiny.rows(11)), **options)

    def overriding(**options):
        if not on_the_trainer:
            return build(type("Own", (PlusTrainer,), {name: OVERRIDES[name]}), **options)
        made = build(**options)
        setattr(made, name, OVERRIDES[name].__get__(made))
        return made

    plain, _ = evaluated(build())
    kept = files(tmp_path)
    torch.manual_seed(0)
    own = overriding()
    own.model.load_state_dict(build().model.state_dict())
    found, ran = evaluated(own)
    assert ran
    assert evaluated(own) == (found, True)
    assert files(tmp_path) == kept
    assert len(logs.about_the_cache) == 1
    assert f"has a {name} of its own" in logs.about_the_cache[0]
    assert (found["eval_loss"] == plain["eval_loss"]) == (name == "_wrap_model")


def test_harmless_overrides_and_callbacks_keep_the_cache(tmp_path, logs):
    class Quiet(PlusTrainer):
        def evaluate(self, *args, **kwargs):
            return super().evaluate(*args, **kwargs)

        def log(self, *args, **kwargs):
            return super().log(*args, **kwargs)

    trainer = make(tmp_path, trainer=Quiet)
    assert [evaluated(trainer)[1] for _ in range(2)] == [True, False]
    assert logs.about_the_cache == []


class Autocast(PlusTrainer):
    entered = 0

    def compute_loss_context_manager(self):
        self.entered += 1
        return torch.autocast("cpu", dtype=torch.bfloat16)


def test_the_loss_without_logits_is_computed_in_the_trainers_context(tmp_path):
    def loss(cls, metric):
        trainer = cls(
            tiny.llama(initializer_range=0.8),
            PlusTrainingArguments(**tiny.quiet(tmp_path)),
            eval_dataset=tiny.causal_rows(12),
            data_collator=tiny.PaddingCollator(),
            compute_metrics=metric,
        )
        return trainer.evaluate()["eval_loss"], trainer

    without, trainer = loss(Autocast, None)
    assert trainer.entered > 0
    assert without == pytest.approx(loss(Autocast, load_metric("perplexity"))[0], rel=1e-4)
    assert without == pytest.approx(loss(Autocast, lambda prediction: {"z": 1.0})[0], rel=1e-4)
    assert abs(without - loss(PlusTrainer, None)[0]) > 1e-4


def shifted(trainer, inputs):
    inputs = dict(Trainer._prepare_inputs(trainer, inputs))
    inputs["input_ids"] = (inputs["input_ids"] + 1) % tiny.VOCABULARY
    return inputs


@pytest.mark.parametrize("on_the_trainer", [False, True])
@pytest.mark.parametrize("task", ["classification", "causal"])
def test_inputs_are_prepared_once(tmp_path, task, on_the_trainer):
    model = tiny.bert() if task == "classification" else tiny.llama(initializer_range=0.8)
    rows = tiny.rows(7) if task == "classification" else tiny.causal_rows(7)

    def loss(cls, arguments, given):
        cls = cls if on_the_trainer else type("Own", (cls,), {"_prepare_inputs": shifted})
        options = {"per_device_eval_batch_size": 7, "prediction_loss_only": True}
        trainer = cls(
            model,
            arguments(**tiny.quiet(tmp_path, **options)),
            eval_dataset=given,
            data_collator=tiny.PaddingCollator(),
        )
        if on_the_trainer:
            trainer._prepare_inputs = own = shifted.__get__(trainer)
        found = trainer.evaluate()["eval_loss"]
        if on_the_trainer:
            assert trainer._prepare_inputs is own
        return found

    assert loss(PlusTrainer, PlusTrainingArguments, rows) == pytest.approx(
        loss(Trainer, TrainingArguments, rows), rel=1e-5
    )
