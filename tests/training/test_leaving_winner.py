"""A stop that is asked for while the best checkpoint is evaluated on all rows leaves that evaluation to the next run."""

import os
import signal

import pytest
from transformers import TrainerCallback

from tests.training.test_race import finished, make

SAVES = {"save_strategy": "steps", "save_steps": 3, "stop_signals": "SIGUSR1"}


class InLastReading(TrainerCallback):
    """Acts once, in the first batch that follows the last evaluation of the schedule."""

    def __init__(self):
        self.armed, self.acted, self.act = False, 0, None

    def on_evaluate(self, args, state, control, **kwargs):
        self.armed = state.global_step >= args.max_steps

    def on_prediction_step(self, args, state, control, **kwargs):
        if self.armed and not self.acted:
            self.acted += 1
            self.act()


def sends(trainer):
    return lambda: os.kill(os.getpid(), signal.SIGUSR1)


def asks(trainer):
    return trainer.request_stop


@pytest.mark.parametrize(("mode", "stop"), [("race", sends), ("race", asks), ("subset", sends)])
def test_the_run_ends_and_the_next_one_reads_the_winner(mode, stop, tmp_path, caplog):
    options = {**SAVES, "max_steps": 6, **({"eval_subset_size": 0.25} if mode == "subset" else {})}
    whole = finished(make(tmp_path / "whole", mode, **options))
    watch = InLastReading()
    left = make(tmp_path / "left", mode, callbacks=[watch], **options)
    watch.act = stop(left)
    left.train()
    assert watch.acted == 1
    assert left.state.global_step == left.args.max_steps
    assert "the best checkpoint is not evaluated on all rows" in caplog.text
    again = make(tmp_path / "left", mode, **options)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == whole.state.global_step
    assert again.state.best_global_step == whole.state.best_global_step
    assert again.state.best_metric == pytest.approx(whole.state.best_metric, rel=1e-6)
