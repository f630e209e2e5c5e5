"""A PlusTrainer without any option saves and leaves at SIGTERM and SIGUSR1, and is stock's run until then."""

import json
import os
import signal
import threading

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from hf_trainplus import BudgetCallback, PlusTrainer, PlusTrainingArguments
from hf_trainplus.budget.stops import StopReason
from hf_trainplus.callbacks import stop_signals
from hf_trainplus.callbacks.stop_signals import ENTRY, StopSignalsCallback
from tests.support import tiny
from tests.support.launch import ROOT, torchrun


@pytest.fixture(autouse=True)
def _begins_without_handlers():
    """A training that raised in an earlier test of this process has left its own, which do what was done before."""
    found = {one: signal.signal(one, signal.SIG_DFL) for one in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for one, handler in found.items():
        signal.signal(one, handler)


class Send(TrainerCallback):
    """Sends a signal to this process at the beginning of a step."""

    def __init__(self, step, number=signal.SIGTERM):
        self.step, self.number = step, number

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step - 1:
            os.kill(os.getpid(), self.number)


def make(folder, kind=PlusTrainer, callbacks=(), **options):
    arguments = PlusTrainingArguments if issubclass(kind, PlusTrainer) else TrainingArguments
    given = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3, "learning_rate": 1e-2, **options}
    return kind(
        tiny.bert(),
        arguments(**tiny.quiet(folder, **given)),
        train_dataset=tiny.rows(16),
        data_collator=tiny.PaddingCollator(),
        callbacks=list(callbacks),
    )


def watching(trainer):
    return [one for one in trainer.callback_handler.callbacks if hasattr(one, "stop_reason")]


def entries(folder):
    return json.loads((folder / "trainer_state.json").read_text())["stateful_callbacks"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_the_run_saves_leaves_and_goes_on_to_the_same_weights(number, tmp_path):
    before = signal.getsignal(number)
    whole = make(tmp_path / "whole")
    whole.train()
    trainer = make(tmp_path / "told", callbacks=[Send(4, number)])
    trainer.train()
    assert trainer.state.global_step == 4
    assert watching(trainer)[0].stop_reason is StopReason.SIGNAL
    assert signal.getsignal(number) is before
    folder = tmp_path / "told" / "checkpoint-4"
    assert entries(folder)[ENTRY]["attributes"]["saved"] == {"reason": "signal"}
    resumed = make(tmp_path / "told")
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 6
    assert watching(resumed)[0].stop_reason is None
    assert ENTRY not in entries(tmp_path / "told" / "checkpoint-6")
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])


def test_a_run_that_nobody_stops_keeps_nothing_and_logs_nothing(tmp_path):
    trainer = make(tmp_path, save_steps=2, max_steps=4)
    trainer.train()
    stock = make(tmp_path / "stock", kind=Trainer, save_steps=2, max_steps=4)
    stock.train()
    for step in (2, 4):
        assert entries(tmp_path / f"checkpoint-{step}") == entries(tmp_path / "stock" / f"checkpoint-{step}")
    ours, theirs = ([set(entry) for entry in one.state.log_history] for one in (trainer, stock))
    assert ours == theirs


def test_who_watches(tmp_path):
    assert [type(one) for one in watching(make(tmp_path))] == [StopSignalsCallback]
    assert [type(one) for one in watching(make(tmp_path, budget="wall_clock=1h"))] == [BudgetCallback]
    assert watching(make(tmp_path, stop_signals="none")) == []
    assert watching(make(tmp_path, stop_signals=None)) == []
    own = BudgetCallback(stop_signals="SIGHUP")
    assert watching(make(tmp_path, callbacks=[own])) == [own]
    hup = watching(make(tmp_path, stop_signals="SIGHUP"))
    assert hup[0].signals.signals == (signal.SIGHUP,)


class Fail(TrainerCallback):
    """Ends training as a bug in somebody's code does."""

    def on_step_end(self, args, state, control, **kwargs):
        raise ZeroDivisionError("in step")


@pytest.mark.parametrize("options", [{}, {"budget": "wall_clock=1h"}], ids=["signals", "budget"])
def test_training_that_raises_puts_the_handlers_back(options, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    trainer = make(tmp_path, callbacks=[Fail()], **options)
    with pytest.raises(ZeroDivisionError, match="in step"):
        trainer.train()
    assert signal.getsignal(signal.SIGTERM) is before


def test_with_none_a_signal_does_what_it_did_before(tmp_path):
    seen, before = [], signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        trainer = make(tmp_path, stop_signals="none", callbacks=[Send(2, signal.SIGUSR1)])
        trainer.train()
        assert (seen, trainer.state.global_step) == ([signal.SIGUSR1], 6)
        watched = make(tmp_path, callbacks=[Send(2, signal.SIGUSR1)])
        watched.train()
        assert (seen, watched.state.global_step) == ([signal.SIGUSR1] * 2, 2)  # the earlier handler is called too
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_off_the_main_thread_training_goes_on(tmp_path):
    trainer = make(tmp_path)
    thread = threading.Thread(target=trainer.train)
    thread.start()
    thread.join()
    assert trainer.state.global_step == 6


def test_with_any_trainer_it_acts_at_step_boundaries(tmp_path):
    trainer = make(tmp_path, kind=Trainer, callbacks=[StopSignalsCallback("SIGUSR1"), Send(2, signal.SIGUSR1)])
    trainer.train()
    assert trainer.state.global_step == 2
    assert (tmp_path / "checkpoint-2" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("kind", "callbacks"),
    [
        (PlusTrainer, lambda: []),
        (Trainer, lambda: [StopSignalsCallback()]),
        (Trainer, lambda: [BudgetCallback()]),
    ],
    ids=["PlusTrainer", "StopSignalsCallback", "BudgetCallback"],
)
def test_what_would_be_lost_is_saved_where_nothing_else_is(kind, callbacks, tmp_path):
    whole = make(tmp_path / "whole", kind=kind, save_strategy="no")
    whole.train()
    assert not list((tmp_path / "whole").glob("checkpoint-*"))
    stopped = make(tmp_path / "run", kind=kind, save_strategy="no", callbacks=[*callbacks(), Send(2)])
    stopped.train()
    assert stopped.state.global_step == 2
    resumed = make(tmp_path / "run", kind=kind, save_strategy="no", callbacks=callbacks())
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 6
    assert all(map(torch.equal, whole.model.state_dict().values(), resumed.model.state_dict().values()))


def test_an_unknown_signal_is_refused():
    with pytest.raises(ValueError, match="'SIGNOPE' is unknown here"):
        StopSignalsCallback("SIGNOPE")


@pytest.mark.parametrize(("agree_seconds", "asked"), [(0.0, list(range(1, 41))), (0.5, list(range(1, 38, 4)))])
def test_short_steps_ask_the_other_ranks_seldom(agree_seconds, asked, tmp_path, monkeypatch):
    """A step takes an eighth of a second here; the other rank is told to stop at step 36."""
    steps, now = [], [0.0]

    def agree(values):
        steps.append(trainer.state.global_step)
        return [float(trainer.state.global_step >= 36 and agree_seconds > 0), values[1]]

    class Tick(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            now[0] += 0.125

    monkeypatch.setattr(stop_signals, "agree", agree)
    monkeypatch.setattr(stop_signals, "world_size", lambda: 2)
    callback = StopSignalsCallback(agree_seconds=agree_seconds, clock=lambda: now[0])
    trainer = make(tmp_path, kind=Trainer, callbacks=[Tick(), callback], max_steps=40, save_strategy="no")
    trainer.train()
    assert steps == asked
    assert trainer.state.global_step == asked[-1]


def test_very_short_steps_ask_the_other_ranks_all_the_same(tmp_path, monkeypatch):
    asked, now = [], [0.0]

    class Tick(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            now[0] += 1e-6

    monkeypatch.setattr(stop_signals, "agree", lambda values: asked.append(trainer.state.global_step) or values)
    monkeypatch.setattr(stop_signals, "world_size", lambda: 2)
    callback = StopSignalsCallback(clock=lambda: now[0])
    trainer = make(tmp_path, kind=Trainer, callbacks=[Tick(), callback], max_steps=102, save_strategy="no")
    trainer.train()
    assert asked == [1, 51, 101]


@pytest.mark.slow
@pytest.mark.distributed
def test_a_signal_to_one_rank_ends_both_at_one_step(tmp_path):
    done = torchrun(ROOT / "tests/support/signal_two_ranks.py", tmp_path)
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    first, second = json.loads(line[len("FOUND ") :])
    assert first == second
    assert first["reason"] == "signal"
    assert 4 <= first["step"] < 400
    assert first["saved"] is True
    assert first["asked"] < first["step"]  # most steps are shorter than the time between two agreements
