import pytest
from transformers import TrainerCallback

from hf_trainplus import AdaptiveEvaluationCallback, PlusTrainer, PlusTrainingArguments
from hf_trainplus.callbacks._handler_order import stand_last
from tests.callbacks.test_patience import Script, run
from tests.support import tiny


def evaluated(trainer):
    return [entry["step"] for entry in trainer.state.log_history if "eval_loss" in entry]


FALLING = [10 - 0.5 * k for k in range(40)]
FLAT = [5.0] * 40


def test_intervals_grow_while_flat_and_shrink_while_improving(tmp_path):
    flat = run(tmp_path / "a", FLAT, AdaptiveEvaluationCallback(1, 8), max_steps=30, save_strategy="no")
    assert evaluated(flat) == [1, 2, 4, 8, 16, 24, 30]
    falling = run(tmp_path / "b", FALLING, AdaptiveEvaluationCallback(1, 8), max_steps=10, save_strategy="no")
    assert evaluated(falling) == list(range(1, 11))


def test_it_needs_no_eval_strategy_and_keeps_the_grid_away(tmp_path):
    for strategy in ("no", "steps", "epoch"):
        trainer = run(
            tmp_path / strategy,
            FLAT,
            AdaptiveEvaluationCallback(4, 8),
            max_steps=20,
            eval_strategy=strategy,
            save_strategy="no",
        )
        assert evaluated(trainer) == [4, 8, 16, 20]


def test_a_stop_is_always_evaluated(tmp_path):
    class StopAt(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = control.should_training_stop or state.global_step == 6

    trainer = run(tmp_path, FLAT, StopAt(), AdaptiveEvaluationCallback(4, 8), max_steps=20, save_strategy="no")
    assert evaluated(trainer) == [4, 6]


@pytest.mark.parametrize("event", ["on_step_end", "on_epoch_end"])
@pytest.mark.parametrize("added", ["before", "behind", "later"])
def test_a_stop_that_any_callback_asks_for_in_any_event_is_evaluated(event, added, tmp_path):
    class Stop(TrainerCallback):
        def asks(self, args, state, control, **kwargs):
            control.should_training_stop = control.should_training_stop or state.global_step >= 6

    class Later(Script):
        def train(self, **options):
            self.add_callback(Stop)
            return super().train(**options)

    setattr(Stop, event, Stop.asks)
    schedule = AdaptiveEvaluationCallback(100, 200)
    callbacks = {"before": [Stop(), schedule], "behind": [schedule, Stop()], "later": [schedule]}[added]
    kind = Later if added == "later" else Script
    trainer = run(tmp_path, FLAT * 3, *callbacks, trainer_class=kind, max_steps=100, save_strategy="no")
    stop = trainer.state.global_step
    assert stop < 100
    assert evaluated(trainer) == [stop]
    assert trainer.callback_handler.callbacks[-1] is schedule
    assert trainer.callback_handler.callbacks.count(schedule) == 1


def test_outside_of_an_event_nothing_is_moved():
    stand_last(AdaptiveEvaluationCallback())


def test_the_delay_is_honoured(tmp_path):
    trainer = run(tmp_path, FLAT, AdaptiveEvaluationCallback(1, 2), max_steps=12, eval_delay=7, save_strategy="no")
    assert evaluated(trainer)[0] == 7


def test_a_resumed_run_goes_on_to_the_same_step(tmp_path):
    whole = run(tmp_path, FLAT, AdaptiveEvaluationCallback(1, 8), max_steps=18)
    for step in (5, 7, 16):
        resumed = run(
            tmp_path, FLAT, AdaptiveEvaluationCallback(1, 8), max_steps=18, resume=str(tmp_path / f"checkpoint-{step}")
        )
        assert evaluated(resumed) == evaluated(whole)


def test_a_time_share_caps_evaluation(tmp_path):
    seconds = [0.0]

    class Slow(Script):
        def evaluate(self, *args, **kwargs):
            seconds[0] += 10.0
            return super().evaluate(*args, **kwargs)

    class Tick(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            seconds[0] += 1.0

    callback = AdaptiveEvaluationCallback(1, 4, time_share=0.5, clock=lambda: seconds[0])
    trainer = run(tmp_path, FALLING, Tick(), callback, max_steps=35, trainer_class=Slow, save_strategy="no")
    steps = evaluated(trainer)
    assert all(later - earlier >= 9 for earlier, later in zip(steps[1:], steps[2:-1], strict=False))
    assert len(steps) <= 5


def test_under_plus_trainer_the_best_off_the_grid_is_loaded(tmp_path):
    options = {
        "max_steps": 12,
        "eval_strategy": "steps",
        "eval_steps": 5,
        "save_strategy": "steps",
        "save_steps": 5,
        "load_best_model_at_end": True,
        "eval_schedule": "adaptive",
        "eval_min_steps": 2,
        "eval_max_steps": 4,
        "learning_rate": 1e-2,
    }
    trainer = PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(tmp_path, **options)),
        train_dataset=tiny.rows(16),
        eval_dataset=tiny.rows(8),
        data_collator=tiny.PaddingCollator(),
    )
    trainer.train()
    logged = {entry["step"]: entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry}
    assert set(logged) != {5, 10, 12}
    assert trainer.state.best_global_step == min(logged, key=logged.get)
    assert trainer.state.best_model_checkpoint.endswith(f"checkpoint-{trainer.state.best_global_step}")


def test_limits_are_checked():
    with pytest.raises(ValueError, match="min_steps=10, max_steps=5"):
        AdaptiveEvaluationCallback(10, 5)
    with pytest.raises(ValueError, match="time_share=2"):
        AdaptiveEvaluationCallback(time_share=2)


@pytest.mark.parametrize(
    ("gain", "steps"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        ({"low": -0.5, "high": 0.0}, [1, 2, 4, 8, 12]),
        ({"high": 0.0}, [1, 2, 4, 8, 12]),
        ({"low": -0.5, "high": 0.5}, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
    ],
    ids=["points", "no gain", "only an upper bound", "not known"],
)
def test_a_known_interval_counts_before_the_noisy_point(gain, steps, tmp_path):
    class Noisy(Script):
        def log(self, logs, *args, **kwargs):
            if "eval_loss" in logs:  # the points improve all the time
                logs |= {f"eval_loss_gain_ci_{side}": bound for side, bound in gain.items()}
            super().log(logs, *args, **kwargs)

        def evaluate(self, *args, **kwargs):
            metrics = {"eval_loss": float(self.losses[self.state.global_step - 1]), "eval_runtime": 0.0}
            self.log(metrics)
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            return metrics

    trainer = run(tmp_path, range(40, 0, -3), AdaptiveEvaluationCallback(1, 4), trainer_class=Noisy, save_strategy="no")
    assert evaluated(trainer) == steps


def test_the_delay_counts_epochs_where_the_grid_does(tmp_path):
    options = {"max_steps": 12, "eval_strategy": "epoch", "save_strategy": "no", "per_device_train_batch_size": 2}
    for delay, first in ((2, 8), (1.5, 6), (0.3, 2)):  # four steps an epoch
        trainer = run(tmp_path, FLAT, AdaptiveEvaluationCallback(1, 2), eval_delay=delay, **options)
        assert evaluated(trainer)[0] == first


def test_a_metric_that_is_not_there_is_an_error(tmp_path):
    message = "AdaptiveEvaluationCallback watches 'eval_f1' and the evaluation gave eval_loss, eval_runtime"
    with pytest.raises(ValueError, match=message):
        run(tmp_path, FLAT, AdaptiveEvaluationCallback(2, 4, metric="f1"))


class Several(Script):
    """Logs one set after the other, as a Trainer with a dictionary of sets does."""

    def evaluate(self, *args, **kwargs):
        step = self.state.global_step
        for name in ("a", "b"):
            metrics = {f"eval_{name}_loss": float(self.losses[step - 1]), f"eval_{name}_runtime": 0.0}
            self.log(dict(metrics))
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


@pytest.mark.parametrize("metric", ["a_loss", "b_loss"])
def test_one_of_several_sets_is_watched(metric, tmp_path):
    options = {"trainer_class": Several, "save_strategy": "no", "metric_for_best_model": None}
    trainer = run(tmp_path, FLAT, AdaptiveEvaluationCallback(1, 8, metric=metric), **options)
    assert [entry["step"] for entry in trainer.state.log_history if "eval_a_loss" in entry] == [1, 2, 4, 8, 12]


def test_several_sets_need_a_name(tmp_path):
    options = {"trainer_class": Several, "save_strategy": "no", "metric_for_best_model": None}
    with pytest.raises(
        ValueError, match=r"gave eval_a_loss.*eval_b_loss.*AdaptiveEvaluationCallback\(metric='a_loss'\)"
    ):
        run(tmp_path, FLAT, AdaptiveEvaluationCallback(1, 8), **options)


@pytest.mark.parametrize("save_steps", [3, 5, 100])
@pytest.mark.parametrize("limit", [None, 1])
def test_a_plain_trainer_loads_the_best_off_the_save_grid(save_steps, limit, tmp_path):
    losses = [10, 9, 8, 7, 6, 5, 4, 5, 6, 7, 8, 9]
    trainer = run(
        tmp_path,
        losses,
        AdaptiveEvaluationCallback(1, 4, improvement_threshold=0.0),
        eval_steps=save_steps,
        save_steps=save_steps,
        save_total_limit=limit,
        load_best_model_at_end=True,
    )
    assert trainer.state.best_global_step == 7
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-7")


def test_nan_is_never_saved_as_the_best(tmp_path):
    losses = [float("nan"), 5, float("nan"), 6] + [7] * 8
    options = {"eval_steps": 100, "save_steps": 100, "load_best_model_at_end": True}
    trainer = run(tmp_path, losses, AdaptiveEvaluationCallback(1, 1), **options)
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-2")
    assert sorted(folder.name for folder in tmp_path.glob("checkpoint-*")) == ["checkpoint-12", "checkpoint-2"]


def test_an_evaluation_that_fails_is_not_made_again_at_every_step(tmp_path):
    calls = []

    def fails(prediction):
        calls.append(len(calls))
        raise RuntimeError("no metric")

    options = {"max_steps": 10, "eval_schedule": "adaptive", "eval_min_steps": 3, "eval_max_steps": 6}
    trainer = PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(tmp_path, **options, on_eval_error="continue")),
        train_dataset=tiny.rows(16),
        eval_dataset=tiny.rows(8),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=fails,
    )
    trainer.train()
    assert len(calls) == 4  # steps 3, 6, 9 and 10
