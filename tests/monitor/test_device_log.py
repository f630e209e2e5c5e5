import re

import numpy as np

from hf_trainplus.monitor.device_log import device_log_values
from hf_trainplus.monitor.devices import GIB, DeviceReading, HostReading
from hf_trainplus.monitor.sampler import SamplerCost
from hf_trainplus.monitor.step_clock import PARTS
from hf_trainplus.monitor.step_report import COLUMNS, StepReport
from hf_trainplus.monitor.throughput import Throughput
from hf_trainplus.monitor.time_weighted import PhaseStatistics

DEVICE = DeviceReading(
    *[50.0, GIB, 2 * GIB, GIB, 300.0, 700.0, 60.0, 1980.0, 3201.0, ("power cap",), 1e6, 2e6, None, None, None, 0.0]
).numbers() | {"energy_wh": 1.0, "nvlink_tx_gib_per_second": 1.0, "nvlink_rx_gib_per_second": 1.0}
HOST = HostReading(*[10.0, 100.0, GIB, 2 * GIB, GIB, 1.0, 1.0, 1.0, 1.0, GIB]).numbers()


def documented(table):
    """Return the keys of a docstring's table: ``a``, ``_max`` behind it adds an ending, ``_rx_`` replaces ``_tx_``."""
    keys = set()
    for row in re.findall(r"^ +\| (``.+?) \|", table, re.MULTILINE):
        base = ""
        for name in re.findall(r"``([^`]+)``", row):
            if name == "_rx_":
                keys.add(base.replace("_tx_", "_rx_"))
            elif name.startswith("_"):
                # the ending replaces another one of its kind
                keys.add(re.sub(r"_(min|max)$", "", base) + name if name in ("_min", "_max") else base + name)
            else:
                base = name
                keys.add(name)
    return keys


def test_every_key_of_a_device_is_documented_and_every_documented_key_is_logged():
    window = PhaseStatistics()
    values = {f"gpu0/{name}": value for name, value in DEVICE.items()} | {f"host/{k}": v for k, v in HOST.items()}
    window.add(values, {"train_step": 1.0})
    logged = device_log_values(window, SamplerCost(1, 0, 0.1, 1.0))
    generic = {key.replace("gpu0/train_step/", "gpu{i}/{phase}/").replace("gpu0/", "gpu{i}/") for key in logged}
    assert generic == documented(device_log_values.__doc__)


def test_every_key_of_the_step_clock_is_documented_and_every_documented_key_is_logged():
    rates = Throughput(1.0, 1.0, 1.0, 1.0)
    logged = set(StepReport(np.ones((2, len(COLUMNS))), rates).log_values())
    shares = {f"time/{part}_percent" for part in PARTS}
    assert shares <= logged
    told = documented(StepReport.__doc__)
    assert (logged - shares) | {"time/{part}_percent"} == told
