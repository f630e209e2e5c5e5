"""Measured figures from a run's checkpoints."""

import json

import pytest

from hf_trainplus.budget.budget import Budget
from hf_trainplus.budget.from_run import read_run
from hf_trainplus.budget.keeping.keeper import BudgetKeeper
from hf_trainplus.budget.meter import Meter, Progress


def write(folder, step, *, limit=None, reason=None, max_steps=100, callbacks=True):
    """A checkpoint as BudgetCallback leaves it: two seconds a step, ten an evaluation, four a save."""
    now = [0.0]
    keeper = BudgetKeeper(Budget.parse(limit), Meter(devices=2, usd_per_device_hour=1.0, clock=lambda: now[0]))
    keeper.begin(Progress())
    for one in range(1, step + 1):
        now[0] += 2.0
        keeper.close("step", Progress(steps=one))
    for phase, seconds in (("evaluation", 10.0), ("save", 4.0)):
        now[0] += seconds
        keeper.close(phase, Progress(steps=step))
    keeper.skip(Progress(steps=step))
    saved = {
        "reason": reason,
        "limit": None,
        "keeper": keeper.state(),
        "rhythm": {"max_steps": max_steps, "evaluate_every": 25, "save_every": 50},
    }
    entry = {"args": {"usd_per_device_hour": 1.0}, "attributes": {"saved": saved}}
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    state = {"global_step": step, "epoch": step / 50, "stateful_callbacks": {"BudgetCallback": entry}}
    if not callbacks:
        state["stateful_callbacks"] = {}
    (path / "trainer_state.json").write_text(json.dumps(state))
    return path


def test_the_newest_checkpoint_counts(tmp_path):
    write(tmp_path, 30)
    newest = write(tmp_path, 100 - 40)
    (tmp_path / "checkpoint-best").mkdir()
    run = read_run(tmp_path)
    assert run.checkpoint == newest
    assert run == read_run(newest)
    assert run.step == 60
    assert run.measured.mean("step") == pytest.approx(2.0)
    assert (run.devices, run.reading.usd) == (2, pytest.approx((60 * 2 + 14) / 3600 * 2))


def test_time_left_has_evaluation_and_saving_in_it(tmp_path):
    left = read_run(write(tmp_path, 60)).time_left()
    assert (left.steps, left.evaluation, left.saving) == (pytest.approx(80.0), 20.0, 4.0)
    assert left.ends_by == "max_steps"


def test_a_limit_of_the_run_ends_it_earlier(tmp_path):
    left = read_run(write(tmp_path, 60, limit="wall_clock=200")).time_left()
    assert left.ends_by == "wall_clock"
    assert 40 < left.seconds < 66


def test_before_twenty_measured_steps_nothing_is_known(tmp_path):
    assert read_run(write(tmp_path, 20)).time_left() is None
    assert read_run(write(tmp_path, 21)).time_left() is not None


def test_a_torn_checkpoint_is_passed_over(tmp_path):
    whole = write(tmp_path, 30)
    torn = write(tmp_path, 60)
    text = (torn / "trainer_state.json").read_text()
    (torn / "trainer_state.json").write_text(text[: len(text) // 2])
    assert read_run(tmp_path).checkpoint == whole


def test_the_reason_of_a_run_that_ended_is_read(tmp_path):
    assert read_run(write(tmp_path, 30, reason="budget_spent")).stop_reason == "budget_spent"


def test_of_a_stage_that_is_over_only_later_ones_are_left(tmp_path):
    path = write(tmp_path, 40, reason="max_steps", max_steps=40) / "trainer_state.json"
    state = json.loads(path.read_text())
    callbacks = state["stateful_callbacks"]
    room = {"limit": "wall_clock", "quantity": "seconds", "left": 9.0, "total": 90.0}
    callbacks["BudgetCallback"]["attributes"]["saved"] |= {"later_stages_seconds": 70.0, "stage_rooms": [room]}

    def read(**stage):
        callbacks["StageCallback"] = {"args": {}, "attributes": {"saved": {"next_stage": None, "reason": None} | stage}}
        path.write_text(json.dumps(state))
        return read_run(tmp_path)

    over = read(next_stage=1)
    assert (over.stop_reason, over.time_left().steps_left, over.time_left().seconds) == (None, 0, 70.0)
    assert read().stage_rooms[0].left == 9.0
    assert read(reason="plan_finished").stop_reason == "plan_finished"
    callbacks["BudgetCallback"]["attributes"]["saved"]["later_stages_seconds"] = None
    assert read(next_stage=1).time_left() is None


def test_a_folder_without_checkpoints_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match="has no checkpoint with a readable trainer_state.json; give the output folder"
    ):
        read_run(tmp_path)


def test_a_run_without_the_callback_is_refused_with_the_line_that_measures(tmp_path):
    with pytest.raises(ValueError, match=r"holds no measured durations. Train with callbacks=\[BudgetCallback\(\)\]"):
        read_run(write(tmp_path, 30, callbacks=False))
