import json
import time
from pathlib import Path

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from hf_trainplus.callbacks.step_clock import StepClockCallback
from hf_trainplus.monitor.step_clock import PARTS
from tests.support import tiny


class SlowRows(torch.utils.data.Dataset):
    """Rows that take a time to come; ``spent`` is how long they truly took."""

    def __init__(self, rows, seconds):
        self.rows, self.seconds, self.spent = rows, seconds, 0.0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        began = time.monotonic()
        time.sleep(self.seconds)
        self.spent += time.monotonic() - began
        return self.rows[index]


class Sleeper(TrainerCallback):
    """Sleeps at one event; ``spent`` is how long it truly slept."""

    def __init__(self, event, seconds):
        self.seconds, self.spent = seconds, 0.0
        setattr(self, event, self.sleep)

    def sleep(self, *args, **kwargs):
        began = time.monotonic()
        time.sleep(self.seconds)
        self.spent += time.monotonic() - began


class Tracker(TrainerCallback):
    """Keeps what it is given at each log, as a tracker does."""

    def __init__(self):
        self.seen = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.seen.append((state.global_step, dict(logs)))


def make(folder, callback, *, attach, rows=None, extra=(), model=None, **options):
    args = TrainingArguments(
        **tiny.quiet(folder, **{"max_steps": 12, "per_device_train_batch_size": 4, "logging_steps": 4, **options})
    )
    trainer = Trainer(
        model or tiny.bert(dropout=0.1),
        args,
        train_dataset=tiny.rows(48) if rows is None else rows,
        eval_dataset=tiny.rows(20),
        data_collator=tiny.PaddingCollator(),
        callbacks=[*([] if attach else [callback]), *extra],
    )
    if attach:
        callback.attach(trainer)
    return trainer


def shares(callback):
    times = callback.summary()
    return {part: (seconds or 0.0) / times["total_seconds"] for part, seconds in times["seconds"].items()}


@pytest.mark.parametrize("attach", [False, True])
def test_parts_add_up_to_the_wall_clock(tmp_path, attach):
    callback = StepClockCallback()
    trainer = make(
        tmp_path,
        callback,
        attach=attach,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=5,
        save_strategy="steps",
        save_steps=6,
    )
    stamps = {}

    class Stamps(TrainerCallback):
        def on_train_begin(self, *args, **kwargs):
            stamps["begin"] = time.monotonic()

        def on_train_end(self, *args, **kwargs):
            stamps["end"] = time.monotonic()

    trainer.callback_handler.callbacks.insert(0, Stamps())
    trainer.train()
    summary = callback.summary()
    total = summary["total_seconds"]
    assert total == pytest.approx(stamps["end"] - stamps["begin"], rel=0.01, abs=0.02)
    assert sum(seconds for seconds in summary["seconds"].values() if seconds is not None) == pytest.approx(
        total, rel=0.01
    )
    assert summary["steps"] == 12
    for part in ("data_wait", "forward_backward", "optimizer", "evaluation", "saving", "logging"):
        assert summary["seconds"][part] > 0, part


@pytest.mark.parametrize("attach", [False, True])
def test_a_dataset_that_sleeps_20_ms_a_row_is_data_wait(tmp_path, attach):
    callback, rows = StepClockCallback(), SlowRows(tiny.rows(48), 0.02)
    make(tmp_path, callback, attach=attach, rows=rows, max_steps=5).train()
    waited = callback.summary()["seconds"]["data_wait"]
    # the truth, and what collating costs on a busy machine
    assert rows.spent <= waited <= rows.spent * 1.15 + 0.05
    truth = rows.spent / callback.summary()["total_seconds"]
    assert shares(callback)["data_wait"] == pytest.approx(truth, abs=0.05)


@pytest.mark.parametrize("attach", [False, True])
def test_a_slow_callback_before_the_clock_is_no_optimizer(tmp_path, attach):
    callback, sleeper = StepClockCallback(), Sleeper("on_step_end", 0.03)
    trainer = make(tmp_path, callback, attach=attach, max_steps=6)
    trainer.callback_handler.callbacks.insert(1, sleeper)
    trainer.train()
    seconds = callback.summary()["seconds"]
    assert seconds["callbacks" if attach else "other"] >= sleeper.spent
    assert seconds["optimizer"] < sleeper.spent / 2


@pytest.mark.parametrize("attach", [False, True])
def test_a_fast_dataset_and_a_slow_model_is_no_data_wait(tmp_path, attach):
    class SlowBert(type(tiny.bert())):
        def forward(self, *args, **kwargs):
            time.sleep(0.05)
            return super().forward(*args, **kwargs)

    model = tiny.bert()
    model.__class__ = SlowBert
    callback = StepClockCallback()
    make(tmp_path, callback, attach=attach, model=model, max_steps=6, remove_unused_columns=False).train()
    assert callback.summary()["seconds"]["forward_backward"] > 6 * 0.05
    assert shares(callback)["forward_backward"] > 5 * shares(callback)["data_wait"]


@pytest.mark.parametrize("attach", [False, True])
def test_workers_are_waited_for_only_when_they_are_behind(tmp_path, attach):
    callback = StepClockCallback()
    make(
        tmp_path, callback, attach=attach, rows=SlowRows(tiny.rows(48), 0.01), max_steps=6, dataloader_num_workers=1
    ).train()
    assert callback.summary()["seconds"]["data_wait"] > 0.05


@pytest.mark.parametrize(
    ("event", "part"),
    [("on_step_end", "callbacks"), ("on_log", "logging"), ("on_prediction_step", "evaluation")],
)
def test_another_callbacks_time_is_put_where_it_belongs(tmp_path, event, part):
    # long beside what a part takes by itself on a busy machine
    callback, sleeper = StepClockCallback(), Sleeper(event, 0.4)
    trainer = make(
        tmp_path,
        callback,
        attach=True,
        extra=[sleeper],
        max_steps=4,
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=4,
    )
    trainer.train()
    seconds = callback.summary()["seconds"]
    # an evaluation's own log is evaluation, and that makes one of the four logs of this run
    inside = sleeper.spent * (3 / 4 if event == "on_log" else 1)
    assert seconds[part] >= inside - 0.03
    assert seconds["evaluation"] + seconds[part] >= sleeper.spent
    for other in set(PARTS) - {part, "evaluation", "forward_backward", "data_wait"}:
        assert seconds[other] < inside


def test_an_evaluation_is_not_in_the_speed(tmp_path):
    callback = StepClockCallback()
    make(
        tmp_path,
        callback,
        attach=True,
        extra=[Sleeper("on_prediction_step", 0.1)],
        max_steps=8,
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=20,
    ).train()
    speed = callback.report.throughput.examples_per_second
    trained = callback.summary()["total_seconds"] - callback.summary()["seconds"]["evaluation"]
    assert callback.summary()["seconds"]["evaluation"] > 0.35
    assert speed > 0.5 * 32 / trained


def test_keys_reach_trackers_and_the_history_at_the_trainers_own_steps(tmp_path):
    tracker, callback = Tracker(), StepClockCallback()
    trainer = make(tmp_path, callback, attach=True, extra=[tracker], eval_strategy="steps", eval_steps=4)
    trainer.train()
    training = [(step, logs) for step, logs in tracker.seen if "loss" in logs]
    assert [step for step, _ in training] == [4, 8, 12]
    for _, logs in training:
        assert logs["time/step_seconds"] > 0
        assert sum(logs[f"time/{part}_percent"] for part in PARTS) == pytest.approx(100.0)
        assert logs["speed/examples_per_second"] > 0
        assert logs["speed/tflops_per_device"] > 0
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert [entry["time/step_seconds"] for entry in history] == [logs["time/step_seconds"] for _, logs in training]
    assert not [logs for _, logs in tracker.seen if "loss" not in logs and any("time/" in key for key in logs)]


def test_examples_and_tokens_are_counted_batch_by_batch(tmp_path):
    rows = [{"input_ids": [3] * 5, "attention_mask": [1] * 5, "labels": 0} for _ in range(10)]
    callback = StepClockCallback()
    # 10 rows in batches of 4: an epoch has 4 + 4 + 2
    make(tmp_path, callback, attach=True, rows=rows, max_steps=6, logging_steps=6).train()
    report = callback.report
    seconds = report.spreads()["total"].mean
    assert report.throughput.examples_per_second * seconds == pytest.approx(20.0)
    assert report.throughput.tokens_per_second * seconds == pytest.approx(100.0)


def test_right_after_a_resume_speed_is_that_of_the_new_steps(tmp_path):
    options = {"max_steps": 8, "save_strategy": "steps", "save_steps": 8, "include_num_input_tokens_seen": "all"}
    make(tmp_path, StepClockCallback(), attach=True, **options).train()
    for attach in (False, True):
        callback = StepClockCallback(write_summary=False)
        trainer = make(tmp_path, callback, attach=attach, **{**options, "max_steps": 12, "save_strategy": "no"})
        began = time.monotonic()
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
        gone = time.monotonic() - began
        report = callback.report
        assert report.steps == 4
        seconds = report.spreads()["total"].mean
        assert seconds < gone
        # 4 steps of 4 rows, not 12
        assert report.throughput.examples_per_second * seconds == pytest.approx(16.0)
        tokens = trainer.state.num_input_tokens_seen
        assert report.throughput.tokens_per_second * seconds < 0.5 * tokens


def test_a_resumed_epoch_runs_over_another_loader_and_is_heard_all_the_same(tmp_path):
    options = {"max_steps": 5, "save_strategy": "steps", "save_steps": 5}
    make(tmp_path, StepClockCallback(), attach=True, **options).train()
    callback, rows = StepClockCallback(), SlowRows(tiny.rows(48), 0.01)
    trainer = make(tmp_path, callback, attach=True, rows=rows, max_steps=8)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert rows.spent <= callback.summary()["seconds"]["data_wait"] <= rows.spent * 1.15 + 0.05


class SlowStream(torch.utils.data.IterableDataset):
    """Rows of a stream that take a time to come; ``spent`` holds how long each truly took."""

    def __init__(self, rows, seconds):
        self.rows, self.seconds, self.spent = rows, seconds, []

    def __iter__(self):
        for row in self.rows:
            began = time.monotonic()
            time.sleep(self.seconds)
            self.spent.append(time.monotonic() - began)
            yield row


@pytest.mark.parametrize("attach", [False, True])
def test_what_a_resumed_stream_reads_again_is_neither_training_nor_waiting(tmp_path, attach):
    options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 6}
    make(tmp_path, StepClockCallback(), attach=attach, rows=SlowStream(tiny.rows(48), 0.0), **options).train()
    callback, rows = StepClockCallback(), SlowStream(tiny.rows(48), 0.02)
    trainer = make(tmp_path, callback, attach=attach, rows=rows, max_steps=9)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    summary = callback.summary()
    skipped, rest = sum(rows.spent[:24]), sum(rows.spent[24:])
    # unattached, the first two batches (one is fetched ahead) come with what is skipped
    assert (
        skipped <= summary["seconds"]["skipping"] <= skipped * 1.15 + 0.05 + (0 if attach else sum(rows.spent[24:32]))
    )
    assert sum(value or 0.0 for value in summary["seconds"].values()) == pytest.approx(summary["total_seconds"])
    speed = callback.report.throughput.examples_per_second
    if attach:
        assert rest <= summary["seconds"]["data_wait"] <= rest * 1.15 + 0.05
        seconds = callback.report.spreads()["total"].mean - summary["seconds"]["skipping"]
        assert speed == pytest.approx(4 * callback.report.steps / seconds)
    else:
        assert summary["seconds"]["data_wait"] is None
        assert speed > 4 * callback.report.steps / callback.report.spreads()["total"].mean


def test_unattached_a_resumed_epoch_is_not_heard_and_its_wait_is_missing_never_zero(tmp_path):
    options = {"max_steps": 5, "save_strategy": "steps", "save_steps": 5}
    make(tmp_path, StepClockCallback(), attach=False, **options).train()
    callback, rows = StepClockCallback(), SlowRows(tiny.rows(48), 0.01)
    # eight steps of this epoch and four of the next, which is heard
    trainer = make(tmp_path, callback, attach=False, rows=rows, max_steps=16)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    summary = callback.summary()
    assert summary["seconds"]["data_wait"] is None
    assert "data_wait" not in summary["ranks"]["spreads"]
    assert summary["seconds"]["skipping"] == 0.0
    assert summary["seconds"]["other"] >= rows.spent
    assert sum(value or 0.0 for value in summary["seconds"].values()) == pytest.approx(summary["total_seconds"])


@pytest.mark.parametrize("attach", [False, True])
def test_training_is_bit_equal_with_and_without(tmp_path, attach):
    def weights(callback, folder):
        trainer = make(
            folder,
            StepClockCallback() if callback is None else callback,
            attach=attach and callback is not None,
            eval_strategy="steps",
            eval_steps=4,
            gradient_accumulation_steps=2,
        )
        if callback is None:
            trainer.pop_callback(StepClockCallback)
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return {name: value.clone() for name, value in trainer.model.state_dict().items()}, losses

    plain, losses = weights(None, tmp_path / "without")
    timed, timed_losses = weights(StepClockCallback(), tmp_path / "with")
    assert losses == timed_losses
    assert [name for name in plain if not torch.equal(plain[name], timed[name])] == []


def test_the_summary_is_strict_json_in_the_output_folder(tmp_path):
    make(tmp_path, StepClockCallback(), attach=False).train()
    summary = json.loads((tmp_path / "trainplus/step_clock.json").read_text())
    assert summary["seconds"]["callbacks"] is None
    assert summary["seconds"]["forward_backward"] > 0
    assert summary["ranks"]["world_size"] == 1
    assert summary["attached"] is False


def test_an_exception_in_training_still_leaves_the_account(tmp_path):
    class Boom(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 6:
                raise RuntimeError("boom")

    callback = StepClockCallback()
    trainer = make(tmp_path, callback, attach=True, extra=[Boom()])
    with pytest.raises(RuntimeError, match="boom"):
        trainer.train()
    assert not callback.active
    assert json.loads((tmp_path / "trainplus/step_clock.json").read_text())["steps"] == 6
    assert "__iter__" not in vars(trainer.callback_handler.train_dataloader.base_dataloader)


def test_a_full_disk_costs_a_warning_and_no_training(tmp_path):
    (tmp_path / "trainplus").write_text("a file where a folder is wanted")
    trainer = make(tmp_path, StepClockCallback(), attach=True)
    trainer.train()
    assert trainer.state.global_step == 12


def test_two_runs_of_one_trainer_are_two_accounts(tmp_path):
    callback = StepClockCallback()
    trainer = make(tmp_path, callback, attach=True)
    trainer.train()
    first = callback.summary()["total_seconds"]
    trainer.train()
    assert callback.summary()["steps"] == 12
    assert callback.summary()["total_seconds"] < 3 * first


def test_attach_stands_before_trackers_once(tmp_path):
    tracker, callback = Tracker(), StepClockCallback()
    trainer = make(tmp_path, callback, attach=True, extra=[tracker])
    callback.attach(trainer)
    callbacks = trainer.callback_handler.callbacks
    assert callbacks.count(callback) == 1
    assert callbacks.index(callback) == 1
    assert callbacks.index(callback) < callbacks.index(tracker)


def test_one_callback_one_trainer(tmp_path):
    callback = StepClockCallback()
    make(tmp_path / "a", callback, attach=True)
    with pytest.raises(ValueError, match="make one for each trainer"):
        make(tmp_path / "b", callback, attach=True)


def test_log_false_keeps_the_history_as_it_was(tmp_path):
    trainer = make(tmp_path, StepClockCallback(log=False), attach=True)
    trainer.train()
    assert not [key for entry in trainer.state.log_history for key in entry if "/" in key]


def test_values_are_handed_to_plus_trainer_once(tmp_path):
    taken = []

    class Logging(Trainer):
        def log(self, logs, start_time=None):
            taken.append(callback.take_log_values(logs))
            logs.update(taken[-1])
            super().log(logs, start_time)

    callback = StepClockCallback()
    args = TrainingArguments(**tiny.quiet(tmp_path, max_steps=4, logging_steps=2))
    trainer = Logging(tiny.bert(), args, train_dataset=tiny.rows(16), data_collator=tiny.PaddingCollator())
    callback.attach(trainer)
    trainer.train()
    assert ["time/step_seconds" in values for values in taken] == [True, True, False]
    assert ["time/step_seconds" in entry for entry in trainer.state.log_history] == [True, True, False]


def test_a_wrong_peak_is_refused():
    with pytest.raises(ValueError, match="peak_flops=0"):
        StepClockCallback(peak_flops=0)


def test_the_loader_is_left_as_it_was(tmp_path):
    trainer = make(tmp_path, StepClockCallback(), attach=False)
    trainer.train()
    base = trainer.callback_handler.train_dataloader.base_dataloader
    assert "__iter__" not in vars(base)
    assert len(list(base)) == 12
    assert Path(tmp_path / "trainplus").is_dir()
