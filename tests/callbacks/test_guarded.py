import pytest
from transformers import Trainer, TrainingArguments

from hf_trainplus import GPUMonitorCallback, MemoryLeakCallback
from hf_trainplus.callbacks._guarded import GuardedCallback
from hf_trainplus.callbacks.diagnosis import DiagnosisCallback
from hf_trainplus.monitor.diagnosis import DiagnosisRule
from tests.support import tiny


def train(folder, callback):
    trainer = Trainer(
        tiny.bert(),
        TrainingArguments(**tiny.quiet(folder, max_steps=4)),
        train_dataset=tiny.rows(16),
        data_collator=tiny.PaddingCollator(),
        callbacks=[callback],
    )
    trainer.train()
    return trainer.state.global_step


def refuse():
    raise RuntimeError("the driver is gone")


class BrokenRule(DiagnosisRule):
    name = "broken"

    def check(self, evidence):
        return 1 / 0


class BrokenLeakCallback(MemoryLeakCallback):
    def on_step_end(self, *args, **kwargs):
        raise MemoryError("no room for a census")


@pytest.mark.parametrize(
    ("callback", "says"),
    [
        (lambda: GPUMonitorCallback(open_with=refuse), "on_train_begin (RuntimeError: the driver is gone)"),
        (
            lambda: DiagnosisCallback(rules=[BrokenRule()], at_step=2),
            "on_step_end (ZeroDivisionError: division by zero)",
        ),
        (BrokenLeakCallback, "on_step_end (MemoryError: no room for a census)"),
    ],
)
def test_a_monitor_that_fails_warns_once_and_never_stops_training(tmp_path, warned, callback, says):
    made = callback()
    assert train(tmp_path, made) == 4
    assert warned == [f"{type(made).__name__} failed in {says}; training goes on without it."]
    assert made.failed


def test_ctrl_c_passes_through():
    class Interrupted(GuardedCallback):
        def on_log(self, *args, **kwargs):
            raise KeyboardInterrupt("ctrl-c")

    with pytest.raises(KeyboardInterrupt, match="ctrl-c"):
        Interrupted().on_log()


def test_another_instance_is_not_skipped(warned):
    class Sometimes(GuardedCallback):
        def __init__(self, broken):
            self.broken, self.calls = broken, 0

        def on_step_end(self, *args, **kwargs):
            self.calls += 1
            if self.broken:
                raise ValueError("mine")

    broken, sound = Sometimes(True), Sometimes(False)
    for callback in (broken, sound, broken, sound):
        callback.on_step_end()
    assert (broken.calls, sound.calls) == (1, 2)
    assert len(warned) == 1
