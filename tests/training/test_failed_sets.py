"""One of several evaluation sets fails: the others decide."""

import json

import pytest
from transformers import EarlyStoppingCallback

from hf_trainplus import EvaluationLeft, PatienceCallback, PlusTrainer, PlusTrainingArguments, load_metric
from hf_trainplus.training.pending import FAILURES, MARKER
from hf_trainplus.training.step_evaluation import FailedSets
from tests.support import tiny

SIZES = {"a": 6, "b": 4}


class FailsOn:
    """Accuracies that rise and then fall, and an error for one set at some of its evaluations."""

    VALUES = (0.1, 0.5, 0.4, 0.3, 0.2, 0.1)

    def __init__(self, name, *calls):
        self.rows, self.calls, self.count = SIZES[name], calls, {size: 0 for size in SIZES.values()}

    def __call__(self, prediction):
        rows = len(prediction.label_ids)
        self.count[rows] += 1
        if rows == self.rows and self.count[rows] in self.calls:
            raise RuntimeError(f"no metric of {rows} rows")
        return {"accuracy": self.VALUES[self.count[rows] - 1]}


def make(folder, metric, callbacks=(), **options):
    arguments = {
        "max_steps": 6,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "save_strategy": "steps",
        "save_steps": 6,
        "metric_for_best_model": "a_accuracy",
        "greater_is_better": True,
        "on_eval_error": "continue",
    }
    return PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, **{**arguments, **options})),
        train_dataset=tiny.rows(16),
        eval_dataset={name: tiny.rows(size) for name, size in SIZES.items()},
        data_collator=tiny.PaddingCollator(),
        compute_metrics=metric,
        callbacks=list(callbacks),
    )


def failures(folder):
    path = folder / FAILURES
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def logged(trainer, key):
    return [entry["step"] for entry in trainer.state.log_history if key in entry]


@pytest.mark.parametrize("failing", ["b", "a"])
def test_the_set_that_is_left_decides_or_the_step_is_marked(failing, tmp_path):
    trainer = make(tmp_path, FailsOn(failing, 2))
    trainer.train()
    assert trainer.state.global_step == 6
    rows = SIZES[failing]
    of_the_set = {"step": 2, "error": "RuntimeError", "message": f"no metric of {rows} rows"}
    if failing == "b":
        assert trainer.state.best_global_step == 2
        assert trainer.state.best_metric == 0.5
        assert (tmp_path / "checkpoint-2").is_dir()
        assert not (tmp_path / "checkpoint-2" / MARKER).exists()
        assert failures(tmp_path) == [{**of_the_set, "evaluation_set": "b"}]
    else:
        assert trainer.state.best_global_step == 3
        assert (tmp_path / "checkpoint-2" / MARKER).exists()
        assert failures(tmp_path) == [of_the_set, {**of_the_set, "evaluation_set": "a"}]
    assert logged(trainer, f"eval_{failing}_accuracy") == [1, 3, 4, 5, 6]
    assert logged(trainer, f"eval_{'ab'.replace(failing, '')}_accuracy") == [1, 2, 3, 4, 5, 6]


def test_patience_counts_the_steps_at_which_another_set_failed(tmp_path):
    runs = {}
    for name, calls in (("whole", ()), ("broken", (2, 3))):
        trainer = make(tmp_path / name, FailsOn("b", *calls), [PatienceCallback(2)])
        trainer.train()
        runs[name] = (trainer.state.global_step, trainer.state.best_global_step)
    assert runs["broken"] == runs["whole"] == (4, 2)


def test_patience_does_not_count_a_step_at_which_its_own_set_failed(tmp_path):
    trainer = make(tmp_path, FailsOn("a", 3), [PatienceCallback(2)])
    trainer.eval_dataset = dict(reversed(trainer.eval_dataset.items()))  # the other set is evaluated first
    trainer.train()
    assert (trainer.state.global_step, trainer.state.best_global_step) == (5, 2)


def test_the_learning_rate_waits_for_the_watched_set(tmp_path):
    plateau = {"lr_scheduler_type": "reduce_lr_on_plateau", "lr_scheduler_kwargs": {"mode": "max", "patience": 9}}
    for name, failing, steps in (("other", "b", 6), ("own", "a", 5)):
        trainer = make(tmp_path / name, FailsOn(failing, 3), **plateau)
        trainer.train()
        assert trainer.lr_scheduler.last_epoch == steps
        assert trainer.lr_scheduler.best == 0.5


def test_nothing_is_left_to_decide_when_all_sets_fail(tmp_path):
    def metric(prediction):
        raise RuntimeError(f"no metric of {len(prediction.label_ids)} rows")

    trainer = make(tmp_path, metric, max_steps=1)
    trainer.train()
    assert (tmp_path / "checkpoint-1" / MARKER).exists()
    assert [(line["message"], line.get("evaluation_set")) for line in failures(tmp_path)] == [
        ("no metric of 6 rows", None),
        ("no metric of 6 rows", "a"),
        ("no metric of 4 rows", "b"),
    ]


def test_an_error_is_raised_when_the_run_does_not_go_on(tmp_path):
    trainer = make(tmp_path, FailsOn("b", 2), on_eval_error="raise")
    with pytest.raises(RuntimeError, match="no metric of 4 rows"):
        trainer.train()
    assert failures(tmp_path) == [{"step": 2, "error": "RuntimeError", "message": "no metric of 4 rows"}]


def test_a_person_asking_for_all_sets_gets_the_error(tmp_path):
    with pytest.raises(RuntimeError, match="no metric of 4 rows"):
        make(tmp_path, FailsOn("b", 1)).evaluate()


def test_a_raced_set_decides_while_the_other_fails(tmp_path):
    metric = load_metric("accuracy")
    trainer = make(tmp_path, metric, eval_mode="race", metric_for_best_model="a_loss", greater_is_better=False)

    class Broken:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            raise OSError("the disk is gone")

    trainer.eval_dataset["b"] = Broken()
    trainer.train()
    assert trainer.state.best_global_step is not None
    assert {(line["error"], line["evaluation_set"]) for line in failures(tmp_path)} == {("OSError", "b")}
    assert len(failures(tmp_path)) == 6


def test_an_evaluation_that_is_left_is_no_failure_of_a_set():
    def leave():
        raise EvaluationLeft("left after 2 batches")

    failed = FailedSets()
    with pytest.raises(EvaluationLeft, match="2 batches"):
        failed.evaluate("eval_a", leave, guarded=True)
    assert failed.errors == {}
    assert failed.evaluate("eval_a", lambda: {"eval_a_loss": 1.0}, guarded=True) == {"eval_a_loss": 1.0}


def test_upstreams_early_stopping_works_with_a_set_of_several(tmp_path):
    trainer = make(tmp_path, FailsOn("b"), [EarlyStoppingCallback(2)], load_best_model_at_end=True)
    trainer.train()
    assert (trainer.state.global_step, trainer.state.best_global_step) == (4, 2)
    assert logged(trainer, "eval_b_accuracy") == [1, 2, 3, 4]
