"""Reasons, conditions and deadlines."""

from datetime import datetime, timezone

import pytest

from hf_trainplus.budget.stops import (
    AnyOf,
    Deadline,
    Moment,
    StopCondition,
    StopFile,
    StopReason,
    find_deadline,
    parse_deadline,
)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_reasons_are_recorded_as_their_values():
    assert [reason.value for reason in StopReason] == [
        "signal",
        "stop_file",
        "deadline",
        "budget_spent",
        "patience",
        "plan_finished",
        "max_steps",
    ]
    assert StopReason("budget_spent") is StopReason.BUDGET_SPENT
    assert [reason for reason in StopReason if reason.urgent] == [StopReason.SIGNAL]


def test_a_stop_file_is_looked_for_now_and_then(tmp_path):
    clock, path = Clock(), tmp_path / "STOP"
    condition = StopFile(path, every_seconds=5.0, clock=clock)
    assert condition.check(Moment()) is None
    path.touch()
    clock.now = 4.9
    assert condition.check(Moment()) is None
    clock.now = 5.0
    assert condition.check(Moment()) is StopReason.STOP_FILE
    path.unlink()
    assert condition.check(Moment()) is StopReason.STOP_FILE


def test_a_stop_file_is_neither_made_nor_removed(tmp_path):
    path = tmp_path / "STOP"
    StopFile(path).check(Moment())
    assert not path.exists()
    path.touch()
    StopFile(path).check(Moment())
    assert path.exists()


def test_a_negative_interval_is_refused(tmp_path):
    with pytest.raises(ValueError, match="every_seconds=-1; allowed are seconds >= 0"):
        StopFile(tmp_path / "STOP", every_seconds=-1)


def test_a_deadline_stops_before_it_by_the_reserve():
    clock = Clock()
    deadline = Deadline(100.0, reserve_seconds=30.0, clock=clock)
    clock.now = 69.9
    assert deadline.check(Moment()) is None
    clock.now = 70.0
    assert deadline.check(Moment()) is StopReason.DEADLINE
    assert deadline.seconds_left() == 30.0


class Always(StopCondition):
    def __init__(self, reason):
        self.reason = reason

    def check(self, moment):
        return self.reason


class LossTooHigh(StopCondition):
    def check(self, moment):
        return StopReason.PATIENCE if moment.metrics.get("eval_loss", 0.0) > 10 else None


def test_the_strongest_reason_of_several_counts():
    reasons = [StopReason.BUDGET_SPENT, None, StopReason.SIGNAL, StopReason.STOP_FILE]
    assert AnyOf(map(Always, reasons)).check(Moment()) is StopReason.SIGNAL
    assert AnyOf([Always(None)]).check(Moment()) is None


def test_a_condition_of_ones_own_sees_step_and_metrics():
    condition = LossTooHigh()
    assert condition.check(Moment(5, {"eval_loss": 11.0})) is StopReason.PATIENCE
    assert condition.check(Moment(5, {"eval_loss": 1.0})) is None


@pytest.mark.parametrize(
    "given",
    [
        1_777_658_400,
        "1777658400",
        "2026-05-01T18:00:00+00:00",
        "2026-05-01T18:00:00Z",
        "2026-05-01T20:00+02:00",
        datetime(2026, 5, 1, 18, tzinfo=timezone.utc),
    ],
)
def test_deadlines(given):
    assert parse_deadline(given) == 1_777_658_400.0


def test_a_time_without_offset_is_local():
    assert parse_deadline("2026-05-01 18:00") == datetime(2026, 5, 1, 18).timestamp()


@pytest.mark.parametrize("given", ["tomorrow", "", "18:00", True, float("nan")])
def test_what_is_no_deadline_is_refused(given):
    with pytest.raises(ValueError, match="allowed: an ISO 8601 time or seconds since 1970"):
        parse_deadline(given)


@pytest.mark.parametrize("given", [3600, "3600", "0", -5, "1999-12-31", float("-inf")])
def test_a_duration_is_no_deadline(given):
    with pytest.raises(ValueError, match="a time before 2001.*for an hour from now on, budget='wall_clock=1h'"):
        parse_deadline(given)


@pytest.mark.parametrize("given", ["Unknown", "0"])
def test_a_wrong_end_of_job_is_called_by_its_name(given):
    with pytest.raises(ValueError, match=f"SLURM_JOB_END_TIME is '{given}'; .*Run `unset SLURM_JOB_END_TIME`"):
        find_deadline(1_700_000_500, {"SLURM_JOB_END_TIME": given}, now=1_700_000_000.0)


def test_the_earlier_deadline_holds():
    now = 1_700_000_000.0
    slurm = {"SLURM_JOB_END_TIME": "1700001000"}
    assert find_deadline(None, {}, now) is None
    assert find_deadline(None, {"SLURM_JOB_END_TIME": ""}, now) is None
    assert find_deadline(None, slurm, now) == 1000.0
    assert find_deadline(now + 500, slurm, now) == 500.0
    assert find_deadline(now + 1500, slurm, now) == 1000.0
    assert find_deadline(now - 500, {}, now) == -500.0
