from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from hf_trainplus.decisions.patience import Patience


def stops_at(rule, values, *, step_size=1, seconds=None):
    """Index of the evaluation at which the rule stops, None when it does not."""
    for index, value in enumerate(values):
        elapsed = None if seconds is None else seconds[index]
        if rule.update(value, step=(index + 1) * step_size, elapsed_seconds=elapsed).stop:
            return index
    return None


def stock_stops_at(values, patience, threshold, greater_is_better):
    """The index at which transformers' own callback stops, best metric updated as its Trainer updates it."""
    transformers = pytest.importorskip("transformers")
    callback = transformers.EarlyStoppingCallback(patience, threshold)
    args = SimpleNamespace(greater_is_better=greater_is_better)
    state = SimpleNamespace(best_metric=None)
    better = np.greater if greater_is_better else np.less
    for index, value in enumerate(values):
        callback.check_metric_value(args, state, None, value)
        if callback.early_stopping_patience_counter >= patience:
            return index
        if state.best_metric is None:
            state.best_metric = float("-inf") if greater_is_better else float("inf")
        if better(value, state.best_metric):
            state.best_metric = value
    return None


@pytest.mark.parametrize("greater_is_better", [True, False])
@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("patience", [1, 2, 5])
def test_it_stops_where_the_stock_callback_stops(patience, threshold, greater_is_better):
    rng = np.random.default_rng(patience)
    stopped = 0
    for _ in range(40):
        drift = -0.08 * np.arange(40) * (-1 if greater_is_better else 1)
        values = (drift * rng.random() + rng.normal(0, 0.4, 40)).tolist()
        for place in np.flatnonzero(rng.random(40) < 0.05):
            values[place] = float("nan")
        rule = Patience(patience, threshold=threshold, greater_is_better=greater_is_better)
        expected = stock_stops_at(values, patience, threshold, greater_is_better)
        assert stops_at(rule, values) == expected
        stopped += expected is not None
    assert stopped > 0


def test_many_small_improvements_do_not_reset_the_count():
    values = [1.0, 0.96, 0.92, 0.88]
    assert stops_at(Patience(3, threshold=0.05), values) == 3
    assert stops_at(Patience(3), values) is None


def test_it_stops_exactly_at_the_second_failure_after_the_last_best():
    assert stops_at(Patience(2), [1, 2, 1.5, 3, 2.5, 2.4]) == 2
    assert stops_at(Patience(2, greater_is_better=True), [1, 2, 1.5, 3, 2.5, 2.4]) == 5


@pytest.mark.parametrize("step_size", [5, 10, 50])
def test_patience_in_steps_does_not_depend_on_how_often_one_evaluates(step_size):
    # best at step 100, patience 200: the stop is at the first evaluation from step 300 on
    values = [abs(step - 100) for step in range(step_size, 1001, step_size)]
    stopped = stops_at(Patience(200, unit="steps"), values, step_size=step_size)
    assert (stopped + 1) * step_size == 300


def test_patience_in_seconds_counts_the_time_given_and_no_clock():
    seconds = [10, 20, 50, 79.9, 80.1, 200]
    assert stops_at(Patience(60, unit="seconds"), [3, 2, 2, 2, 2, 2], seconds=seconds) == 4


def test_seconds_must_be_given_when_they_are_counted():
    with pytest.raises(ValueError, match="needs elapsed_seconds"):
        Patience(60, unit="seconds").update(1.0, step=1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nonfinite_values_count_and_are_never_best(value):
    rule = Patience(2)
    rule.update(1.0, step=1)
    verdict = rule.update(value, step=2)
    assert (verdict.improved, verdict.best, verdict.best_step, verdict.waited) == (False, 1.0, 1, 1.0)
    assert rule.update(value, step=3).reason == "patience"


def test_nonfinite_values_stop_when_asked_to():
    rule = Patience(5, nonfinite="stop")
    assert rule.update(float("nan"), step=1).reason == "nonfinite"


def test_a_run_that_starts_with_nan_still_finds_its_best():
    rule = Patience(2)
    rule.update(float("nan"), step=1)
    assert rule.update(2.0, step=2).improved
    assert rule.best == 2.0


@pytest.mark.parametrize(
    ("options", "value", "reason"),
    [
        ({"stopping_threshold": 0.5}, 0.5, "stopping_threshold"),
        ({"stopping_threshold": 0.5}, 0.6, None),
        ({"stopping_threshold": 0.5, "greater_is_better": True}, 0.6, "stopping_threshold"),
        ({"divergence_threshold": 9.0}, 9.5, "divergence_threshold"),
        ({"divergence_threshold": 9.0}, 9.0, None),
        ({"divergence_threshold": 0.1, "greater_is_better": True}, 0.05, "divergence_threshold"),
    ],
)
def test_thresholds_stop_at_once(options, value, reason):
    assert Patience(None, **options).update(value, step=1).reason == reason


@pytest.mark.parametrize("unit", ["evaluations", "steps", "seconds"])
@pytest.mark.parametrize("cut", range(1, 7))
def test_a_resumed_rule_stops_at_the_same_step(unit, cut):
    values = [3.0, 2.0, 2.5, 1.9, 1.95, 2.0, 2.1, 2.2, 2.3]
    patience = {"evaluations": 4, "steps": 40, "seconds": 8.0}[unit]
    seconds = [2.0 * (index + 1) for index in range(len(values))]
    expected = stops_at(Patience(patience, unit=unit), values, step_size=10, seconds=seconds)
    assert expected == 7
    first = Patience(patience, unit=unit)
    assert stops_at(first, values[:cut], step_size=10, seconds=seconds) is None
    second = Patience(patience, unit=unit)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    # the checkpoint's own step is evaluated again after a resume and must not count twice
    assert second.update(values[cut - 1], step=10 * cut, elapsed_seconds=seconds[cut - 1]) == first.update(
        values[cut - 1], step=10 * cut, elapsed_seconds=seconds[cut - 1]
    )
    verdicts = [
        second.update(values[index], step=10 * (index + 1), elapsed_seconds=seconds[index]).stop
        for index in range(cut, len(values))
    ]
    assert verdicts.index(True) + cut == expected


def test_a_stopped_rule_stays_stopped_after_a_resume():
    first = Patience(1)
    assert stops_at(first, [1.0, 2.0]) == 1
    second = Patience(1)
    second.load_state_dict(first.state_dict())
    assert second.update(2.0, step=2).stop


def test_a_fresh_state_is_loaded_as_fresh():
    rule = Patience(1)
    rule.load_state_dict(Patience(1).state_dict())
    assert rule.best is None
    assert rule.update(5.0, step=1).improved


def test_a_state_in_another_unit_is_refused():
    with pytest.raises(ValueError, match="counts steps and this one evaluations"):
        Patience(3).load_state_dict(Patience(3, unit="steps").state_dict())


def test_steps_must_not_fall():
    rule = Patience(3)
    rule.update(1.0, step=10)
    with pytest.raises(ValueError, match="step 5 comes after step 10"):
        rule.update(1.0, step=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0}, "numbers > 0"),
        ({"patience": float("nan")}, "numbers > 0"),
        ({"patience": 2.5}, "whole number"),
        ({"unit": "epochs"}, "evaluations, steps, seconds"),
        ({"threshold": -0.1}, "numbers >= 0"),
        ({"nonfinite": "ignore"}, "'count' and 'stop'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Patience(**options)
