import json

import numpy as np
import pytest

from hf_trainplus.monitor.step_clock import PARTS, PartTimes
from hf_trainplus.monitor.step_report import COLUMNS, RankRow, StepReport
from hf_trainplus.monitor.throughput import Throughput

NOTHING = Throughput(None, None, None, None)


def row(steps=10, measured=PARTS, extra=None, **seconds):
    parts = {part: seconds.get(part, 0.0) for part in PARTS}
    return RankRow(PartTimes(parts, sum(parts.values()), steps), measured, extra or {}).vector()


def report(*rows, throughput=NOTHING):
    return StepReport(np.asarray(rows), throughput)


def test_shares_and_time_a_step_without_evaluation_and_saving():
    values = report(row(data_wait=2, forward_backward=5, evaluation=2, saving=1)).log_values()
    assert values["time/step_seconds"] == pytest.approx(0.7)
    assert values["time/data_wait_percent"] == pytest.approx(20.0)
    assert values["time/evaluation_percent"] == pytest.approx(20.0)
    assert sum(values[f"time/{part}_percent"] for part in PARTS) == pytest.approx(100.0)
    assert not [key for key in values if key.endswith(("_rank", "_min", "_max"))]


def test_a_part_that_is_not_measured_has_no_key():
    values = report(row(measured=("forward_backward", "other"), forward_backward=1)).log_values()
    assert "time/callbacks_percent" not in values
    assert "time/data_wait_percent" not in values
    assert values["time/forward_backward_percent"] == 100.0


def test_ranks_are_compared_and_the_slowest_is_named():
    # rank 1 works four seconds longer, rank 0 waits for it inside backward
    fast = row(data_wait=1, forward_backward=9, extra={"forward": 2.0})
    slow = row(data_wait=1, forward_backward=9, extra={"forward": 6.0})
    values = report(fast, slow).log_values()
    assert values["time/slowest_rank"] == 1
    assert (values["time/own_seconds_min"], values["time/own_seconds_max"]) == (pytest.approx(0.3), pytest.approx(0.7))
    assert values["time/data_wait_percent_min"] == values["time/data_wait_percent_max"] == pytest.approx(10.0)


def test_the_rank_that_waits_for_data_is_named():
    values = report(row(data_wait=0, rank_sync=4, other=6), row(data_wait=4, other=6)).log_values()
    assert values["time/data_wait_slowest_rank"] == 1
    assert values["time/data_wait_percent_max"] == pytest.approx(40.0)
    assert values["time/data_wait_percent_min"] == 0.0


def test_without_the_forward_pass_apart_no_rank_is_called_slow():
    assert "time/slowest_rank" not in report(row(other=1), row(other=1)).log_values()


def test_device_time_and_speed():
    extra = {"device_forward_backward": 3.0, "device_optimizer": 1.0}
    values = report(row(other=10, extra=extra), throughput=Throughput(5.0, None, 0.5, 12.0)).log_values()
    assert values["time/device_step_seconds"] == pytest.approx(0.4)
    assert values["speed/examples_per_second"] == 5.0
    assert values["speed/model_flops_utilization_percent"] == 12.0
    assert "speed/tokens_per_second" not in values


def test_json_is_strict_and_whole():
    text = json.dumps(report(row(data_wait=1, other=3), row(data_wait=3, other=1)).to_json(), allow_nan=False)
    back = json.loads(text)
    assert back["shares"]["data_wait"] == pytest.approx(0.5)
    assert back["spreads"]["data_wait"] == {"minimum": 1.0, "mean": 2.0, "maximum": 3.0, "largest_rank": 1}
    assert (back["world_size"], back["steps"]) == (2, 10)


def test_keys_are_safe_names_and_values_plain_numbers():
    values = report(row(other=1, extra={"forward": 1.0}), row(other=2, extra={"forward": 2.0})).log_values()
    assert values
    for key, value in values.items():
        assert set(key) <= set("abcdefghijklmnopqrstuvwxyz_/"), key
        assert type(value) in (float, int), key


def test_an_empty_interval_logs_nothing():
    assert report(row(steps=0)).log_values() == {}


def test_rows_are_as_long_as_the_columns():
    assert len(row()) == len(COLUMNS)
