"""A new best always has a checkpoint, and it is loaded at the end."""

import itertools
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback, TrainingArguments

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny


class Scripted:
    """A metric that follows a script, one value an evaluation."""

    def __init__(self, values):
        self.values = iter(values)

    def __call__(self, prediction):
        return {"accuracy": next(self.values)}


class Steps(TrainerCallback):
    """Asks for evaluations or saves at chosen steps and keeps the weights of every step."""

    def __init__(self, evaluate=(), save=()):
        self.evaluate, self.save, self.weights = evaluate, save, {}

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.weights[state.global_step] = {key: value.clone() for key, value in model.state_dict().items()}
        control.should_evaluate = control.should_evaluate or state.global_step in self.evaluate
        control.should_save = control.should_save or state.global_step in self.save


def run(folder, values, *, callback=None, max_steps=8, metric="accuracy", resume=None, **options):
    steps = callback or Steps()
    arguments = {
        "max_steps": max_steps,
        "learning_rate": 1e-2,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "metric_for_best_model": metric,
        "load_best_model_at_end": True,
        **options,
    }
    trainer = PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, **arguments)),
        train_dataset=tiny.rows(16),
        eval_dataset=tiny.rows(6),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=Scripted(values),
        callbacks=[steps],
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer, steps


def assert_best(trainer, steps, step):
    assert trainer.state.best_global_step == step
    folder = Path(trainer.state.best_model_checkpoint)
    assert folder.name == f"checkpoint-{step}"
    on_disk = load_file(folder / "model.safetensors")
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, steps.weights[step][name])
        assert torch.equal(value, on_disk[name])


VALUES = [0.1, 0.5, 0.9, 0.4, 0.3, 0.9, 0.2, 0.1]


@pytest.mark.parametrize("strategy", ["no", "best", "steps", "epoch"])
@pytest.mark.parametrize("limit", [None, 1, 2])
def test_every_save_strategy_and_limit(strategy, limit, tmp_path):
    trainer, steps = run(tmp_path, VALUES, save_strategy=strategy, save_steps=5, save_total_limit=limit)
    assert_best(trainer, steps, 3)
    assert trainer.state.best_metric == 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("save_steps", "eval_steps"), [*itertools.product([1, 2, 3, 5, 7], [1, 2, 3, 4])])
def test_any_pair_of_save_and_eval_steps(save_steps, eval_steps, tmp_path):
    evaluations = [step for step in range(1, 9) if step % eval_steps == 0 or step == 8]
    values = VALUES[: len(evaluations)]
    trainer, steps = run(tmp_path, values, save_strategy="steps", save_steps=save_steps, eval_steps=eval_steps)
    assert_best(trainer, steps, evaluations[values.index(max(values))])


def test_evaluations_off_the_grid_have_a_checkpoint(tmp_path):
    callback = Steps(evaluate=(2, 5))
    trainer, steps = run(
        tmp_path, [0.9, 0.5, 0.1, 0.1], callback=callback, eval_steps=4, save_strategy="steps", save_steps=4
    )
    assert_best(trainer, steps, 2)


def test_a_callbacks_save_survives_save_strategy_best(tmp_path):
    trainer, _ = run(tmp_path, VALUES, callback=Steps(save=(7,)), save_strategy="best")
    assert (Path(trainer.args.output_dir) / "checkpoint-7").is_dir()


def test_nan_is_never_best_and_the_state_stays_strict_json(tmp_path):
    values = [float("nan"), 0.2, float("nan"), float("inf"), 0.3, 0.1, 0.1, 0.1]
    trainer, steps = run(tmp_path, values, save_strategy="steps", save_steps=1)
    assert_best(trainer, steps, 5)

    def refuse(token):
        raise AssertionError(f"{token} is no strict JSON")

    for path in Path(tmp_path).glob("checkpoint-*/trainer_state.json"):
        json.loads(path.read_text(), parse_constant=refuse)
    shown = [entry for entry in trainer.state.log_history if "eval_nonfinite" in entry]
    assert [entry["step"] for entry in shown] == [1, 3, 4]


def test_best_survives_a_resume(tmp_path):
    run(tmp_path, VALUES[:4], save_strategy="steps", save_steps=4, max_steps=4)
    trainer, _ = run(tmp_path, VALUES[4:], save_strategy="steps", save_steps=4, resume=str(tmp_path / "checkpoint-4"))
    assert trainer.state.best_global_step == 3
    assert os.path.isdir(trainer.state.best_model_checkpoint)


@pytest.mark.parametrize(("name", "greater"), [("perplexity", False), ("wer", False), ("accuracy", True), ("f1", True)])
def test_direction_of_known_metrics(name, greater, tmp_path):
    args = PlusTrainingArguments(**tiny.quiet(tmp_path, metric_for_best_model=name))
    assert args.greater_is_better is greater


def test_unknown_direction_is_refused_at_construction(tmp_path):
    with pytest.raises(ValueError, match="greater_is_better"):
        PlusTrainingArguments(**tiny.quiet(tmp_path, metric_for_best_model="wobble"))
    PlusTrainingArguments(**tiny.quiet(tmp_path, metric_for_best_model="wobble", greater_is_better=False))


def test_stock_arguments_still_refuse(tmp_path):
    options = tiny.quiet(tmp_path, eval_strategy="steps", eval_steps=3, load_best_model_at_end=True)
    options |= {"save_strategy": "steps", "save_steps": 4}
    with pytest.raises(ValueError, match="round multiple"):
        TrainingArguments(**options)
    assert PlusTrainingArguments(**options).load_best_model_at_end is True


def test_missing_metric_fails_at_the_first_evaluation(tmp_path):
    with pytest.raises(ValueError, match=r"no 'eval_f1'.*eval_accuracy"):
        run(tmp_path, VALUES, metric="f1")
    assert (tmp_path / "checkpoint-1").is_dir()


def several(folder, **options):
    arguments = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 1, "learning_rate": 1e-2, **options}
    return PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, **arguments)),
        train_dataset=tiny.rows(16),
        eval_dataset={"a": tiny.rows(6), "b": tiny.rows(5, seed=1)},
        data_collator=tiny.PaddingCollator(),
        compute_metrics=lambda prediction: {"eval_accuracy": 0.5},
    )


def test_several_sets_need_a_named_metric(tmp_path):
    with pytest.raises(ValueError, match="a_loss, b_loss"):
        several(tmp_path, load_best_model_at_end=True)


def sets_of(folder, names):
    return PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder)),
        eval_dataset={name: tiny.rows(3) for name in names},
        data_collator=tiny.PaddingCollator(),
    )


def test_sets_that_would_share_their_keys_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\['a b', 'a_b'\] would both log as eval_a_b_\.\.\.; .* rename one"):
        sets_of(tmp_path, ["a b", "c", "a_b"])


def test_a_dictionary_without_sets_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"eval_dataset=\{\} holds no set; allowed are .* e\.g\. eval_dataset="):
        sets_of(tmp_path, [])


def test_an_unknown_set_is_named_with_those_that_there_are(tmp_path):
    trainer = sets_of(tmp_path, ["a", "b"])
    with pytest.raises(ValueError, match=r"no evaluation set 'c'; allowed are the names in eval_dataset \('a', 'b'\)"):
        trainer.evaluate("c")
    assert trainer.evaluate("b")["eval_examples"] == 3
    trainer.eval_dataset = tiny.rows(3)
    with pytest.raises(ValueError, match=r"no evaluation set 'b'; .* \(none, since eval_dataset is one data set\)"):
        trainer.evaluate("b")


def test_several_sets_work_for_best_and_plateau(tmp_path):
    trainer = several(
        tmp_path,
        load_best_model_at_end=True,
        metric_for_best_model="a_loss",
        lr_scheduler_type="reduce_lr_on_plateau",
        lr_scheduler_kwargs={"patience": 0},
    )
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "eval_a_loss" in entry]
    assert trainer.state.best_metric == min(entry["eval_a_loss"] for entry in logged)
    keys = {key for entry in trainer.state.log_history for key in entry}
    assert not [key for key in keys if "eval_eval" in key or "_eval_" in key]
    assert {"eval_a_accuracy", "eval_b_accuracy"} <= keys
