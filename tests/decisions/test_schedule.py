from __future__ import annotations

import json

import pytest

from hf_trainplus.decisions.schedule import AdaptiveSchedule, EvaluationOutcome, FixedSchedule


def follow(schedule, values, *, last_step=None, **seconds):
    """Feed values at the steps that the schedule asks for; return these steps."""
    steps, outcome = [], EvaluationOutcome(0, last_step=last_step)
    for value in values:
        following = schedule.next_step(outcome)
        if following is None:
            break
        steps.append(following)
        outcome = EvaluationOutcome(following, value, last_step=last_step, **seconds)
    return steps


@pytest.mark.parametrize(("step", "expected"), [(0, 10), (9, 10), (10, 20), (15, 20)])
def test_fixed_schedule_keeps_the_grid(step, expected):
    assert FixedSchedule(10).next_step(EvaluationOutcome(step)) == expected


def test_fixed_schedule_evaluates_at_the_delay_and_not_before():
    assert FixedSchedule(10, delay_steps=30).next_step(EvaluationOutcome(0)) == 30
    assert FixedSchedule(10, delay_steps=31).next_step(EvaluationOutcome(0)) == 40


@pytest.mark.parametrize("schedule", [FixedSchedule(10), AdaptiveSchedule(10, 40)])
def test_the_last_step_is_always_evaluated_and_nothing_after_it(schedule):
    assert schedule.next_step(EvaluationOutcome(0, last_step=7)) == 7
    assert schedule.next_step(EvaluationOutcome(7, 1.0, last_step=7)) is None


def test_interval_doubles_while_flat_up_to_the_longest():
    assert follow(AdaptiveSchedule(10, 40), [1.0] * 6) == [10, 20, 40, 80, 120, 160]


def test_interval_halves_while_improving_down_to_the_shortest():
    schedule = AdaptiveSchedule(10, 80, start_steps=80)
    assert follow(schedule, [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]) == [80, 160, 200, 220, 230, 240]


@pytest.mark.parametrize("greater_is_better", [True, False])
def test_improvement_follows_the_metrics_direction(greater_is_better):
    schedule = AdaptiveSchedule(10, 80, start_steps=40, greater_is_better=greater_is_better)
    steps = follow(schedule, [0.5, 0.6, 0.7])
    schedule.next_step(EvaluationOutcome(steps[-1], 0.7))
    assert steps[:2] == [40, 80]
    assert steps[2] - steps[1] == (20 if greater_is_better else 80)


@pytest.mark.parametrize(
    ("interval", "expected"), [((0.02, 0.3), 20), ((-0.3, 0.005), 80), ((-0.1, 0.3), 40), ((0.01, 0.3), 40)]
)
def test_improvement_is_judged_on_the_interval_of_the_paired_difference(interval, expected):
    schedule = AdaptiveSchedule(10, 80, 0.01, start_steps=40)
    schedule.next_step(EvaluationOutcome(0))
    schedule.next_step(EvaluationOutcome(40, 1.0))
    # the point value alone would always call this an improvement
    following = schedule.next_step(EvaluationOutcome(80, 0.5, improvement=interval))
    assert following == 80 + expected


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nonfinite_values_are_no_improvement(value):
    schedule = AdaptiveSchedule(10, 80, start_steps=40)
    follow(schedule, [1.0])
    schedule.next_step(EvaluationOutcome(40, 1.0))
    assert schedule.next_step(EvaluationOutcome(80, value)) == 80 + 80
    assert schedule.next_step(EvaluationOutcome(160, 0.5)) == 160 + 40


def test_a_small_gain_a_time_is_measured_against_the_best_so_far():
    schedule = AdaptiveSchedule(10, 160, 0.1, start_steps=20)
    steps = follow(schedule, [1.0, 0.95, 0.94, 0.7])
    assert [after - before for before, after in zip(steps, steps[1:], strict=False)] == [20, 40, 80]
    assert schedule.next_step(EvaluationOutcome(steps[-1], 0.7)) == steps[-1] + 40


def test_no_evaluation_before_the_delay_and_one_at_it():
    assert follow(AdaptiveSchedule(10, 40, delay_steps=25), [1.0, 1.0]) == [25, 35]


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_evaluation_stays_within_its_share_of_time(share):
    # one second a training step, evaluations of 7 to 21 seconds: far above the share at the shortest interval
    schedule = AdaptiveSchedule(10, 40, time_share=share)
    step, trained, evaluated, shares = 0, 0.0, 0.0, []
    outcome = EvaluationOutcome(0)
    for number in range(40):
        following = schedule.next_step(outcome)
        trained += following - step
        cost = 7.0 + (number * 5) % 15
        evaluated += cost
        shares.append(evaluated / (evaluated + trained))
        outcome = EvaluationOutcome(
            following, 1.0 / (number + 1), evaluation_seconds=cost, training_seconds=following - step
        )
        step = following
    assert shares[0] > share or share == 0.5  # the first evaluation's cost cannot be known
    assert max(shares[5:]) <= share * 1.35
    assert shares[-1] <= share * 1.02


def test_without_measured_time_the_share_changes_nothing():
    assert follow(AdaptiveSchedule(10, 40, time_share=0.01), [1.0] * 4) == follow(AdaptiveSchedule(10, 40), [1.0] * 4)


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_resumed_schedule_chooses_the_same_next_steps(cut):
    values = [1.0, 0.8, 0.79, 0.4, 0.41, 0.39, 0.2, 0.2, 0.1]
    measured = {"evaluation_seconds": 3.0, "training_seconds": 12.0}
    whole = AdaptiveSchedule(10, 80, time_share=0.2)
    steps = follow(whole, values, **measured)
    first = AdaptiveSchedule(10, 80, time_share=0.2)
    assert follow(first, values[:cut], **measured) == steps[:cut]
    first.next_step(EvaluationOutcome(steps[cut - 1], values[cut - 1], **measured))
    second = AdaptiveSchedule(10, 80, time_share=0.2)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for place in range(cut, len(values) - 1):
        outcome = EvaluationOutcome(steps[place], values[place], **measured)
        assert second.next_step(outcome) == steps[place + 1]


def test_steps_must_not_fall():
    schedule = AdaptiveSchedule(10, 40)
    schedule.next_step(EvaluationOutcome(20, 1.0))
    with pytest.raises(ValueError, match="step 10 comes after step 20"):
        schedule.next_step(EvaluationOutcome(10, 1.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_steps": 0}, "1 <= min_steps <= max_steps"),
        ({"min_steps": 20, "max_steps": 10}, "1 <= min_steps <= max_steps"),
        ({"improvement_threshold": -0.1}, "must be >= 0"),
        ({"improvement_threshold": float("nan")}, "must be >= 0"),
        ({"delay_steps": -1}, "must be >= 0"),
        ({"time_share": 0.0}, "share in"),
        ({"time_share": 1.0}, "share in"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AdaptiveSchedule(**options)


def test_a_fixed_grid_needs_a_positive_step():
    with pytest.raises(ValueError, match="every >= 1"):
        FixedSchedule(0)


def test_a_saved_interval_is_brought_into_new_limits():
    schedule = AdaptiveSchedule(10, 80, start_steps=80)
    tighter = AdaptiveSchedule(10, 40)
    tighter.load_state_dict(schedule.state_dict())
    assert tighter.interval == 40
