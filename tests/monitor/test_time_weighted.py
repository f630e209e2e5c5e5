import numpy as np
import pytest

from hf_trainplus.monitor.time_weighted import PhaseStatistics, TimeWeighted


def test_the_mean_is_over_time_and_not_over_samples():
    rng = np.random.default_rng(0)
    values, seconds = rng.uniform(0, 100, 500), rng.exponential(1.0, 500)
    entry = TimeWeighted()
    for value, time in zip(values, seconds, strict=True):
        entry.add(value, time)
    assert entry.mean == pytest.approx(np.average(values, weights=seconds))
    assert (entry.minimum, entry.maximum) == (values.min(), values.max())


def test_nothing_seen_is_none():
    assert TimeWeighted().to_json() == {"mean": None, "min": None, "max": None, "seconds": 0.0}


def test_time_does_not_run_backwards():
    with pytest.raises(ValueError, match="seconds=-1"):
        TimeWeighted().add(1.0, -1.0)


def test_phases_explain_the_numbers():
    # three ticks of one second: training at 90, half and half, evaluating at 20
    statistics = PhaseStatistics()
    statistics.add({"use": 90.0}, {"train_step": 1.0})
    statistics.add({"use": 60.0}, {"train_step": 0.4, "evaluation": 0.6})
    statistics.add({"use": 20.0}, {"evaluation": 1.0})
    assert statistics.get("use").mean == pytest.approx((90 + 60 + 20) / 3)
    assert statistics.get("use", "train_step").mean == pytest.approx((90 + 0.4 * 60) / 1.4)
    assert statistics.get("use", "evaluation").mean == pytest.approx((0.6 * 60 + 20) / 1.6)
    # the mixed tick belongs to the phase that filled most of it
    assert statistics.get("use", "train_step").minimum == 90.0
    assert statistics.get("use", "evaluation").maximum == 60.0
    assert statistics.phases() == ["train_step", "evaluation"]


def test_a_missing_value_costs_no_time():
    statistics = PhaseStatistics()
    statistics.add({"power": 100.0}, {"train_step": 1.0})
    statistics.add({}, {"train_step": 9.0})
    assert statistics.get("power").seconds == 1.0
    assert statistics.get("use") is None
