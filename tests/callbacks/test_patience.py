import json
from pathlib import Path

import pytest
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

from hf_trainplus import PatienceCallback
from tests.support import tiny
from tests.support.launch import torchrun


class Script(Trainer):
    """A stock Trainer whose evaluations follow a script of losses, by step."""

    losses = ()

    def evaluate(self, *args, **kwargs):
        step = self.state.global_step
        metrics = {"eval_loss": float(self.losses[step - 1]), "eval_runtime": 0.0}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


def run(folder, losses, *callbacks, resume=None, trainer_class=Script, **options):
    trainer_class.losses = losses
    arguments = {
        "max_steps": 12,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "save_strategy": "steps",
        "save_steps": 1,
        "metric_for_best_model": "loss",
        **options,
    }
    trainer = trainer_class(
        tiny.bert(),
        TrainingArguments(**tiny.quiet(folder, **arguments)),
        train_dataset=tiny.rows(8),
        eval_dataset=tiny.rows(4),
        data_collator=tiny.PaddingCollator(),
        callbacks=list(callbacks),
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


LOSSES = [5, 4, 4.5, 3, 3.5, 3.4, 3.3, 3.2, 3.1, 3.05, 3.04, 3.03]


@pytest.mark.parametrize("patience", [1, 2, 3, 5])
def test_it_stops_where_stock_stops(patience, tmp_path):
    stock = run(tmp_path / "stock", LOSSES, EarlyStoppingCallback(early_stopping_patience=patience))
    ours = run(tmp_path / "ours", LOSSES, PatienceCallback(patience))
    assert ours.state.global_step == stock.state.global_step < 12


@pytest.mark.parametrize("step", [2, 5, 6])
def test_a_resumed_run_stops_at_the_same_step(step, tmp_path):
    whole = run(tmp_path, LOSSES, PatienceCallback(3))
    resumed = run(tmp_path, LOSSES, PatienceCallback(3), resume=str(tmp_path / f"checkpoint-{step}"))
    assert resumed.state.global_step == whole.state.global_step == 7


def test_a_run_that_had_stopped_takes_no_step(tmp_path):
    run(tmp_path, LOSSES, PatienceCallback(3))
    weights = []

    class Count(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            weights.append(state.global_step)

    resumed = run(tmp_path, LOSSES, PatienceCallback(3), Count(), resume=str(tmp_path / "checkpoint-7"))
    assert weights == []
    assert resumed.state.global_step == 7


def test_a_checkpoint_without_it_can_be_resumed_with_it(tmp_path):
    run(tmp_path, LOSSES, max_steps=4)
    rising = LOSSES[:5] + [6, 7, 8, 9, 10, 11, 12]
    resumed = run(tmp_path, rising, PatienceCallback(3), resume=str(tmp_path / "checkpoint-4"))
    assert resumed.state.global_step == 8


def test_steps_and_seconds_are_units_too(tmp_path):
    assert run(tmp_path / "a", LOSSES, PatienceCallback(4, unit="steps")).state.global_step == 8
    ticks = iter(range(0, 10_000, 10))
    timed = PatienceCallback(60, unit="seconds", clock=lambda: float(next(ticks)))
    assert run(tmp_path / "b", LOSSES, timed).state.global_step < 12


def test_nan_never_improves(tmp_path):
    losses = [5, 4] + [float("nan")] * 10
    assert run(tmp_path / "a", losses, PatienceCallback(2)).state.global_step == 4
    assert run(tmp_path / "b", losses, PatienceCallback(2, nonfinite="stop")).state.global_step == 3


def test_thresholds(tmp_path):
    good = PatienceCallback(None, stopping_threshold=3.45)
    assert run(tmp_path / "a", LOSSES, good).state.global_step == 4
    bad = PatienceCallback(None, divergence_threshold=4.2)
    assert run(tmp_path / "b", LOSSES, bad).state.global_step == 1


def test_a_missing_metric_is_an_error_that_names_the_others(tmp_path):
    with pytest.raises(ValueError, match="watches 'eval_f1' and the evaluation gave eval_loss"):
        run(tmp_path, LOSSES, PatienceCallback(3, metric="f1"))


class AlsoTests(Script):
    """A person evaluates a set of their own under another prefix, at every step."""

    prefix = "test"

    def evaluate(self, *args, **kwargs):
        own = {f"{self.prefix}_loss": 1.0, f"{self.prefix}_runtime": 0.0}
        metrics = super().evaluate(*args, **kwargs)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, own)
        return metrics


class TestsFirst(TrainerCallback):
    """Evaluates a test set before the run's first own evaluation."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 1:
            self.handler.on_evaluate(args, state, control, {"test_loss": 1.0, "test_runtime": 0.0})


@pytest.mark.parametrize("prefix", ["test", "eval_test"])
def test_evaluations_of_ones_own_are_none_of_its_business(prefix, tmp_path):
    AlsoTests.prefix = prefix
    trainer = run(tmp_path, LOSSES, PatienceCallback(3), trainer_class=AlsoTests)
    assert trainer.state.global_step == 7


def test_a_test_set_may_come_first(tmp_path):
    class Wired(Script):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            first = TestsFirst()
            first.handler = self.callback_handler
            self.add_callback(first)

    trainer = run(tmp_path, LOSSES, PatienceCallback(2), trainer_class=Wired, eval_steps=2)
    assert trainer.state.global_step == 8


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="patience=0"):
        PatienceCallback(0)
    with pytest.raises(ValueError, match="unit='epochs'"):
        PatienceCallback(3, unit="epochs")


def test_the_evaluation_before_the_first_step_decides_nothing(tmp_path):
    losses = [9, 8, 8, 8, 8, 1]  # the last of them is that of step 0
    options = {"eval_on_start": True, "max_steps": 5}
    stock = run(tmp_path / "stock", losses, EarlyStoppingCallback(early_stopping_patience=2), **options)
    ours = run(tmp_path / "ours", losses, PatienceCallback(2, stopping_threshold=2.0), **options)
    assert ours.state.global_step == stock.state.global_step == 4


def test_two_of_them_are_resumed_apart(tmp_path):
    def stoppers():
        return PatienceCallback(4), PatienceCallback(9, metric="runtime", greater_is_better=False)

    whole = run(tmp_path, LOSSES, *stoppers())  # the runtime never improves, so that the second would stop at 10
    resumed = run(tmp_path, LOSSES, *stoppers(), resume=str(tmp_path / "checkpoint-5"))
    assert resumed.state.global_step == whole.state.global_step == 8


@pytest.mark.distributed
@pytest.mark.slow
def test_ranks_agree_on_seconds(tmp_path):
    done = torchrun(Path(__file__).with_name("patience_two_ranks.py"), tmp_path, timeout=100)
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    first, second = json.loads(line.removeprefix("FOUND "))
    assert first == second
    assert first[0] < 30
